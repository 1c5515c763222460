"""The embedded benchmarks: prompts that the project generated once (models/train/texts), and
their scores.

rows/<name>.jsonl.gz holds the prompts of each split, `ROWS` each; a hash of the normalised prompt
chose the split, so no prompt occurs in two."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tasks.base import Prompt, Reference, Score, Split, Task, TaskError
from tasks.mini import scores

DEFAULT_PROMPTS, ROWS = 200, 1024
FOLDER = Path(__file__).parent / "rows"


class Benchmark(NamedTuple):
    """As `Task` has them; `score` takes a prompt's reference and the answers to its turns."""

    version: int
    metric: str
    proportion: bool
    score: Callable[[Reference, Sequence[str]], Score]


BENCHMARKS: Mapping[str, Benchmark] = {
    "mini_gsm": Benchmark(4, "exact_match", True, scores.gsm),
    "mini_code": Benchmark(1, "pass@1", True, scores.code),
    "mini_chat": Benchmark(1, "accuracy", True, scores.chat),
    "mini_instruct": Benchmark(2, "exact", True, scores.instruct),
    "mini_sum": Benchmark(1, "rougeL", False, scores.news),
    "mini_choice": Benchmark(4, "accuracy", True, scores.choice),
}


@cache
def rows(name: str) -> Mapping[Split, list[Prompt]]:
    """The prompts of each split of a benchmark."""
    by_split: dict[Any, list[Prompt]] = defaultdict(list)
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            split = row["id"].split("-")[1]
            by_split[split].append(
                Prompt(id=row["id"], turns=tuple(row["turns"]), reference=row["reference"])
            )
    return by_split


class MiniTask(Task):
    """One embedded benchmark: its test split, always in the same order."""

    def __init__(self, name: str, day: date | None = None) -> None:
        """`day`: as `Prompt.date`."""
        if name not in BENCHMARKS:
            raise TaskError(
                f"no embedded benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}"
            )
        self.name, self.date, self.runs_programs = name, day, name == "mini_code"
        self.version, self.metric, self.proportion, self._score = BENCHMARKS[name]

    def prompts(self, n: int | None = None, seed: int = 0) -> list[Prompt]:
        """The first `n` test prompts (200 when None). `seed` is ignored: every run answers the same
        prompts."""
        return self.prompts_of("test", DEFAULT_PROMPTS if n is None else n)

    def prompts_of(self, split: Split, n: int, seed: int = 0) -> list[Prompt]:
        """The first `n` prompts of a split."""
        if n < 1:
            raise TaskError(f"{self.name}: n must be at least 1, got {n}")
        if n > ROWS:
            raise TaskError(f"{self.name}: n={n}: this benchmark has {ROWS:,} {split} prompts")
        prompts = rows(self.name)[split][:n]
        return (
            prompts
            if self.date is None
            else [replace(prompt, date=self.date) for prompt in prompts]
        )

    def unscorable(self) -> str | None:
        return None if not self.runs_programs or self.own_models else scores.sandbox_fault()

    def caution(self) -> str | None:
        if self.own_models and (fault := scores.sandbox_fault()):
            return (
                f"mini_code: {fault}; the programs of the project's own models run as plain "
                "processes with limits"
            )
        return super().caution()

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """Score the answers to the prompt's turns (one text a turn)."""
        if self.runs_programs:
            return scores.code(prompt.reference, texts, trusted=self.own_models)
        return self._score(prompt.reference, texts)
