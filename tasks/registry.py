"""Find a task by its name. A task is a class that takes its options, and a pydantic model of these options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tasks.base import Task, TaskError
from tasks.gsm8k import Gsm8k, Gsm8kOptions
from tasks.mini import BENCHMARKS, MiniTask
from tasks.prompts import Prompts, PromptsOptions


class MiniOptions(BaseModel):
    """max_new_tokens: tokens a turn where decoding.max_new_tokens is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(ge=1)


_TASKS: dict[str, tuple[type[BaseModel], Callable[[Any], Task]]] = {
    **{name: (MiniOptions, lambda _, name=name: MiniTask(name)) for name in BENCHMARKS},
    "gsm8k": (Gsm8kOptions, Gsm8k),
    "prompts": (PromptsOptions, Prompts),
}


def names() -> list[str]:
    """All tasks, sorted."""
    return sorted(_TASKS)


def options(name: str) -> type[BaseModel]:
    """The options of a task; `max_new_tokens`, its own limit on a turn, is one of them. Raises TaskError."""
    return _find(name)[0]


def build(name: str, options: BaseModel) -> Task:
    """The task with these options. Data is read when its prompts are asked for. Raises TaskError."""
    return _find(name)[1](options)


def _find(name: str) -> tuple[type[BaseModel], Callable[[Any], Task]]:
    if name not in _TASKS:
        raise TaskError(f"task={name}: unknown; there are {', '.join(names())}")
    return _TASKS[name]
