"""What the training commands' options share: a pair, a task, an engine, and where results and work go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bench.config.engine import Engine
from bench.config.identity import digest
from bench.config.paths import PROJECT
from bench.config.schema import Pair
from bench.config.section import Named, Section, choose, parse, validated
from bench.run.models import load_language_model
from bench.run.threads import use_threads
from bench.training.resumable import map_resumable
from tasks import registry
from tasks.base import Prompt, Task, TaskOptions

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
        """The typed options of a composed configuration. Raises ValueError, one line."""
        sections = {"pair": parse(Pair, config, "pair"), "engine": parse(Engine, config, "engine"),
                    "task": choose(config, "task", registry.options, registry.names(config.get("task")))}
        options = validated(cls, {**config, **sections}, "")
        options.engine.check_device()
        return options

    def load_task(self) -> Task:
        """Raises TaskError."""
        return registry.build(self.task.name, self.task.options)

    def map_prompts(self, identity: dict[str, Any], prompts: Sequence[Prompt],
                    function: Callable[[Prompt], list[Any]], title: str) -> list[tuple[str, list[Any]]]:
        """(prompt id, result of `function`) in order; results in `work` that have this identity are reused. Raises
        ValueError."""
        return map_resumable(self.work, identity, prompts, function, title)

    def prompt_rng(self, prompt: Prompt, seed: int) -> np.random.Generator:
        """Random numbers that depend on the prompt's id and the seed alone."""
        return np.random.default_rng(int(digest({"id": prompt.id, "seed": seed}), 16))

    @staticmethod
    def provenance_name(model: LanguageModel) -> str:
        """A model's source as written into a file that travels: a folder of the checkout is named relative to it."""
        source = Path(model.source)
        if source.is_absolute() and source.is_relative_to(PROJECT):
            return str(source.relative_to(PROJECT))
        return model.source

    def load_model(self, role: str) -> LanguageModel:
        """The pair's model in a role, target or draft. Raises ValueError, ModelError."""
        use_threads(self.engine)
        return load_language_model(self.pair, self.engine, role)
