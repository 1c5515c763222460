"""The page of margins of any pair's target (conf/margins.yaml): how sure it is, and what its runner-up does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, PositiveInt

from bench.training.cards import TEMPLATES, render
from bench.training.margins import answers, certainty, margins, substitution_table, thresholds
from bench.training.options import PairOptions
from methods.decode import Limits
from methods.method import autoregressive
from results.reports.spec import OWN_MODELS
from results.store.files import check_writable_file

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


class MarginPage(PairOptions):
    """conf/margins.yaml, which explains every field."""

    NUMBERS: ClassVar[set[str]] = {"model", "task", "certainty", "thresholds", "substitution"}
    """Keys of the numbers beside a page, which a later page needs."""
    prompts: PositiveInt
    max_new_tokens: PositiveInt
    theta: float = Field(gt=0, lt=1)
    substitutions: int = Field(ge=0)
    beside: tuple[Path, ...]

    @classmethod
    def measured(cls, file: Path) -> dict[str, Any]:
        """The numbers of a page measured before. Raises ValueError, one line."""
        try:
            numbers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"beside={file}: cannot be read ({error}); give the .json beside a page of "
                             "margins") from error
        if not isinstance(numbers, dict) or cls.NUMBERS - numbers.keys():
            raise ValueError(f"beside={file}: no numbers of a page of margins; give the .json beside such a page")
        return numbers

    def measure(self, target: LanguageModel) -> dict[str, Any]:
        """All numbers of the page, as plain data."""
        task = self.load_task()
        method = autoregressive(target)
        limits = Limits(self.max_new_tokens, target.eos_ids, task.stop)
        positions = [position for answer in answers(method, task.prompts(self.prompts), limits)
                     for position in margins(method, answer)]
        if not positions:
            raise ValueError(f"task={task.name}: no prompt has an answer; give prompts that fit the model")
        replaced = task.proportion and self.substitutions > 0
        measured = {task.name: (task, positions)}
        table = substitution_table(method, measured, self.theta, limits, self.substitutions) if replaced else {}
        model = self.provenance_name(target) if self.pair.name == OWN_MODELS else self.pair.name
        return {"model": model, "task": task.name, "prompts": self.prompts, "theta": self.theta,
                "new": self.max_new_tokens, "certainty": certainty(positions, self.theta),
                "thresholds": thresholds(positions), "substitution": table}


def run(config: Mapping[str, Any]) -> None:
    """Measure, then write the page and its numbers. Raises ValueError, ModelError, TaskError."""
    page = MarginPage.from_config(config)
    beside = [page.measured(file) for file in page.beside]
    check_writable_file(page.out, "out")
    numbers = page.measure(page.load_model("target"))
    page.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    page.out.write_text(render(TEMPLATES / "margins.md.j2", rows=[numbers, *beside]), encoding="utf-8")
    print(page.out)
