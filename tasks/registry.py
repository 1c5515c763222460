"""Find a task by its name. A task is a class that takes its options, and a pydantic model of these options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tasks.base import Task, TaskError
from tasks.dataset import Dataset, DatasetOptions
from tasks.mini import BENCHMARKS, MiniTask
from tasks.prompts import Prompts, PromptsOptions


class MiniOptions(BaseModel):
    """max_new_tokens: tokens a turn where decoding.max_new_tokens is null."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(ge=1)


_TASKS: dict[str, tuple[type[BaseModel], Callable[[Any], Task]]] = {
    **{name: (MiniOptions, lambda _, name=name: MiniTask(name)) for name in BENCHMARKS},
    "prompts": (PromptsOptions, Prompts),
}


def names(given: Mapping[str, Any] | None = None) -> list[str]:
    """All tasks, sorted. A section that says how rows become prompts is a dataset under whatever name it has."""
    own = {str(given.get("name"))} if isinstance(given, Mapping) and "hub" in given else set()
    return sorted({*_TASKS, "dataset", *own})


def options(name: str) -> type[BaseModel]:
    """The options of a task; `max_new_tokens`, its own limit on a turn, is one of them. A name that is none of the
    tasks with code of their own is a dataset's."""
    return _TASKS[name][0] if name in _TASKS else DatasetOptions


def build(name: str, options: BaseModel) -> Task:
    """The task with these options. Data is read when its prompts are asked for. Raises TaskError."""
    if isinstance(options, DatasetOptions):
        return Dataset(name, options)
    if name not in _TASKS:
        raise TaskError(f"task={name}: unknown; there are {', '.join(names())}")
    return _TASKS[name][1](options)
