"""Few-shot examples before each question, from a shipped file, a user's file or a task of lm-eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tasks.base import TaskError
from tasks.sources import DATA, Source

LM_EVAL = "lm_eval:"


def _file_or_task(source: object) -> object:
    """Resolve a file to its path, tasks/data first; leave a task of lm-eval as text."""
    if not isinstance(source, str) or source.startswith(LM_EVAL):
        return source
    shipped = DATA / source
    return shipped if shipped.is_file() else Path(source).expanduser()


ShotSource = Annotated[Path | str, BeforeValidator(_file_or_task)]


class Shots(BaseModel):
    """Few-shot examples: earlier turns of the conversation with task.chat=true, else one text before the question.

    count   number of examples.
    source  `NAME.jsonl` of tasks/data, `lm_eval:TASK.yaml` (the examples listed in lm-eval's task file), or a path.
    target  template of an example's answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    count: int = Field(default=0, ge=0)
    source: ShotSource | None = None
    target: str = "{{ answer }}"

    def messages(self, prompt: str, fill: Callable[[str, Mapping[str, Any]], str]) -> list[tuple[str, str]]:
        """(question, answer) of each example. Raises TaskError."""
        if not self.count:
            return []
        rows = self._rows()
        if len(rows) < self.count:
            raise TaskError(f"task.shots.count={self.count}: {self.source} has {len(rows)} examples; lower it")
        return [(fill(prompt, row), fill(self.target, row)) for row in rows[:self.count]]

    def _rows(self) -> list[dict[str, Any]]:
        if self.source is None:
            raise TaskError(f"task.shots.count={self.count}: needs task.shots.source=FILE.jsonl")
        if isinstance(self.source, str):
            from tasks.scorers.harness import task_file

            samples = task_file(self.source.removeprefix(LM_EVAL)).get("fewshot_config", {}).get("samples")
            if not samples:
                raise TaskError(f"task.shots.source={self.source}: this task of lm-eval lists no examples; "
                                "give another task or a JSONL file")
            return samples
        return list(Source(path=self.source).rows("the examples", "task.shots.source"))
