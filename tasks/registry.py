"""Look up a task by name: the pydantic model of its options, and the class that takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tasks.base import Task, TaskError, TaskOptions
from tasks.dataset import Dataset, DatasetOptions
from tasks.mini import BENCHMARKS, MiniTask
from tasks.prompts import Prompts, PromptsOptions


def _mini_task(name: str) -> Callable[[Any], Task]:
    return lambda options: MiniTask(name, options.date)


_TASKS: dict[str, tuple[type[TaskOptions], Callable[[Any], Task]]] = {
    **{name: (TaskOptions, _mini_task(name)) for name in BENCHMARKS},
    "prompts": (PromptsOptions, Prompts),
}
"""name -> (options, task made from them) of the tasks with code of their own."""


def names(section: Mapping[str, Any] | None = None) -> list[str]:
    """All task names, sorted. `section`, a task section with a `hub` key, is a dataset under any
    name."""
    dataset = (
        {str(section.get("name"))} if isinstance(section, Mapping) and "hub" in section else set()
    )
    return sorted({*_TASKS, "dataset", *dataset})


def options(name: str) -> type[TaskOptions]:
    """The options of a task. Any name but those of the tasks with code of their own is a
    dataset's."""
    return _TASKS[name][0] if name in _TASKS else DatasetOptions


def build(name: str, options: TaskOptions) -> Task:
    """The task with these options. Data is read when its prompts are asked for. Raises
    TaskError."""
    if isinstance(options, DatasetOptions):
        return Dataset(name, options)
    if name not in _TASKS:
        raise TaskError(f"task={name}: unknown; there are {', '.join(names())}")
    return _TASKS[name][1](options)
