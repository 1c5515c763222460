"""Few-shot examples before each question, from a shipped file, a user's file or a task of
lm-eval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from tasks.base import StrictModel, TaskError
from tasks.sources import DATA, RowSource

LM_EVAL = "lm_eval:"


def _file_or_task(source: object) -> object:
    """Resolve a file to its path, tasks/data first; leave a task of lm-eval as text."""
    if not isinstance(source, str) or source.startswith(LM_EVAL):
        return source
    shipped = DATA / source
    return shipped if shipped.is_file() else Path(source).expanduser()


ShotSource = Annotated[Path | str, BeforeValidator(_file_or_task)]


class Shots(StrictModel):
    """Few-shot examples: earlier turns of the conversation with task.chat=true, else one text
    before the question. A prompt's template that names `examples` gets their rows instead, and
    places them itself.

    count   number of examples; None: all of the source.
    source  `NAME.jsonl` of tasks/data, `lm_eval:TASK.yaml` (the examples listed in lm-eval's task
            file), or a path.
    target  template of an example's answer.
    """

    count: int | None = Field(default=0, ge=0)
    source: ShotSource | None = None
    target: str = "{{ answer }}"

    @model_validator(mode="before")
    @classmethod
    def _all_of_a_file(cls, value: Any) -> Any:
        """`task.shots=FILE`: all examples of that file."""
        return {"count": None, "source": value} if isinstance(value, str) else value

    def messages(
        self, prompt: str, fill: Callable[[str, Mapping[str, Any]], str]
    ) -> list[tuple[str, str]]:
        """(question, answer) of each example. Raises TaskError."""
        return [(fill(prompt, row), fill(self.target, row)) for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        """The examples. Raises TaskError."""
        if self.count == 0:
            return []
        rows = self._rows()
        if self.count is not None and len(rows) < self.count:
            raise TaskError(
                f"task.shots.count={self.count}: {self.source} has {len(rows)} examples; lower it"
            )
        return rows[: self.count]

    def _rows(self) -> list[dict[str, Any]]:
        if self.source is None:
            count = "null" if self.count is None else self.count
            raise TaskError(f"task.shots.count={count}: needs task.shots.source=FILE.jsonl")
        if isinstance(self.source, str):
            from tasks.scorers.harness import task_file

            samples = (
                task_file(self.source.removeprefix(LM_EVAL))
                .get("fewshot_config", {})
                .get("samples")
            )
            if not samples:
                raise TaskError(
                    f"task.shots.source={self.source}: this task of lm-eval lists no examples; "
                    "give another task or a JSONL file"
                )
            return samples
        return list(RowSource(path=self.source).rows("the examples", "task.shots.source"))
