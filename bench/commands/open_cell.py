"""One cell outside a group: composed from overrides, its models loaded on first use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.compose import composer
from bench.run.answer import context, limits_of, stream_name
from bench.run.models import ModelPool, use_threads
from methods.decode import Request

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.decode import Limits
    from methods.method import Method
    from tasks.base import Prompt, Task


class OpenCell:
    """A cell with what is needed to decode its prompts.

    cell    the composed cell.
    output  folder of what the command writes.
    task    where its prompts come from.
    """

    def __init__(self, cell: Cell, output: Path) -> None:
        self.cell, self.output = cell, output
        self.task: Task = cell.load_task()
        self._pool = ModelPool()

    @classmethod
    def compose(cls, overrides: Sequence[str]) -> OpenCell:
        """The cell of a command line of `python -m bench`. Raises ConfigError."""
        with composer() as hydra:
            point = hydra.point(overrides)
            return cls(point.cell, point.settings.output.dir)

    @cached_property
    def method(self) -> Method:
        """The cell's method on its models. Raises ModelError."""
        return self.method_of(self.cell)

    def method_of(self, cell: Cell) -> Method:
        """The method of a related cell, which shares the models. Raises ModelError."""
        use_threads(cell.engine)
        return self._pool.load(cell).method

    def composed(self, overrides: Sequence[str]) -> Method:
        """The method of another command line, which shares the models. Raises ConfigError,
        ModelError."""
        with composer() as hydra:
            return self.method_of(hydra.point(overrides).cell)

    @property
    def limits(self) -> Limits:
        """Where an answer ends."""
        return limits_of(self.cell, self.method.target, self.task)

    def prompt(self, number: int) -> Prompt:
        """The task's prompt of that number, from 0. Raises TaskError."""
        return self.task.prompts(number + 1, self.cell.seed)[number]

    def request(self, prompt: Prompt) -> Request:
        """The prompt's first turn, with the random stream that the runner gives it. Raises
        ModelError, TaskError."""
        return Request(self.context(prompt), stream_name(self.cell, self.task, prompt, 0))

    def context(self, prompt: Prompt) -> list[int]:
        """Token ids of the prompt's first turn. Raises ModelError, TaskError."""
        return context(self.method.target, prompt, [])
