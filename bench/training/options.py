"""What the training commands' options share: a pair, a task, an engine, and where results and work go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.config.schema import Engine, Named, Pair, Section, choose, parse, validated
from bench.run.model_pool import load_language_model, use_threads
from tasks import registry
from tasks.base import Task, TaskOptions

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


class PairOptions(Section):
    """Options of a command that runs a pair's models on a task.

    pair    where the models are.
    task    where the prompts come from.
    engine  device, dtype and threads.
    out     the file to write.
    work    folder of intermediate results, for resuming.
    """

    pair: Pair
    task: Named[TaskOptions]
    engine: Engine
    out: Path
    work: Path

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The typed options of a composed configuration. Raises ConfigError, one line."""
        sections = {"pair": parse(Pair, config, "pair"), "engine": parse(Engine, config, "engine"),
                    "task": choose(config, "task", registry.options, registry.names(config.get("task")))}
        return validated(cls, {**config, **sections}, "")

    def load_task(self) -> Task:
        """Raises TaskError."""
        return registry.build(self.task.name, self.task.options)

    def load_model(self, role: str) -> LanguageModel:
        """The pair's model in a role, target or draft. Raises ConfigError, ModelError."""
        use_threads(self.engine)
        return load_language_model(self.pair, self.engine, role)
