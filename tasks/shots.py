"""Worked examples before each question: from a file of the project, a user's file, or a task of lm-eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tasks.base import TaskError
from tasks.sources import DATA, Source

LM_EVAL = "lm_eval:"


def _file_or_task(source: object) -> object:
    """A file as its path, those of tasks/data by their name alone; a task of lm-eval as text."""
    if not isinstance(source, str) or source.startswith(LM_EVAL):
        return source
    own = DATA / source
    return own if own.is_file() else Path(source).expanduser()


ShotSource = Annotated[Path | str, BeforeValidator(_file_or_task)]


class Shots(BaseModel):
    """count: how many examples. source: `NAME.jsonl` of tasks/data, `lm_eval:TASK.yaml` (the examples that lm-eval's
    task file lists), or a path. target: template of an example's answer. As earlier turns of a conversation when chat
    is on, else in one text before the question."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(default=0, ge=0)
    source: ShotSource | None = None
    target: str = "{{ answer }}"

    def messages(self, prompt: str, fill: Callable[[str, Mapping[str, Any]], str]) -> list[tuple[str, str]]:
        """(question, answer) of each example. Raises TaskError."""
        if not self.count:
            return []
        rows = self._rows()
        if len(rows) < self.count:
            raise TaskError(f"task.shots.count={self.count}: {self.source} has {len(rows)} examples")
        return [(fill(prompt, row), fill(self.target, row)) for row in rows[:self.count]]

    def _rows(self) -> list[dict[str, Any]]:
        if self.source is None:
            raise TaskError(f"task.shots.count={self.count}: needs task.shots.source=FILE.jsonl")
        if isinstance(self.source, str):
            from tasks.scorers.harness import task_file

            found = task_file(self.source.removeprefix(LM_EVAL)).get("fewshot_config", {}).get("samples")
            if not found:
                raise TaskError(f"task.shots.source={self.source}: this task of lm-eval lists no examples")
            return found
        return list(Source(path=self.source).rows("the examples", "task.shots.source"))
