"""Hand a sweep over to a `hydra/launcher` (joblib, submitit) that runs its points in processes of their own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress

from omegaconf import DictConfig

from bench.config.cell import Cell
from bench.config.compose import as_dict
from bench.config.hydra_internals import register_resolvers, run_hydra
from bench.config.settings import Settings
from bench.run.cells import run_cells
from bench.run.model_pool import ModelPool
from results.store.cells import Store


def launch(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Let Hydra compose the points again and run each beside its own baseline; results are read from the store."""
    with suppress(SystemExit):  # Hydra has printed why; what was measured is in the store
        run_hydra(run_point, "config", args, argv)


def run_point(config: DictConfig) -> None:
    """Run one composed point in this process."""
    register_resolvers()
    plain = as_dict(config)
    settings = Settings.from_config(plain)
    run_cells([Cell.from_config(plain)], settings, Store(settings.store.dir), ModelPool())
