"""Hand a sweep over to a `hydra/launcher` (joblib, submitit) that runs its points in processes of their own."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from bench.config.points import Point
from bench.run.cells import run_cells
from bench.run.model_pool import ModelPool
from results.store.cells import Store

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from bench.config.hydra_internals import CommandLine


def launch(line: CommandLine) -> None:
    """Let Hydra compose the points again and run each beside its own baseline; results are read from the store."""
    with suppress(SystemExit):  # Hydra has printed why; what was measured is in the store
        line.run_hydra(run_point)


def run_point(config: DictConfig) -> None:
    """Run one composed point in this process."""
    point = Point.from_hydra(config)
    run_cells([point.cell], point.settings, Store(point.settings.store.dir), ModelPool())
