"""One cell outside a group: composed from overrides, with its method on loaded models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from bench.config.compose import composer
from bench.run.models import ModelPool, decoding_threads

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.method import Method


def open_cell(overrides: Sequence[str], pool: ModelPool | None = None) -> tuple[Cell, Method]:
    """The cell of a command line of `python -m bench`, and its method; with one `pool`, several
    share their models. Raises ConfigError, ModelError."""
    with composer() as hydra:
        cell = hydra.point(overrides).cell
    loaded = (ModelPool() if pool is None else pool).load(cell)
    torch.set_num_threads(cell.engine.threads or decoding_threads(loaded.method.target))
    return cell, loaded.method
