"""The settings in a stored cell.yaml, compared with the name of its folder, which is a hash of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.config.identity import IDENTITY_VERSION, UNRECORDED
from methods.engine.source import ModelError
from tasks.base import TaskError

if TYPE_CHECKING:
    from results.store.cells import CellFolder, Store

DECODERS = ("lean", "transformers")


def names(config: Mapping[str, Any]) -> set[str]:
    """The names that a cell with these settings can have on models with the recorded fingerprints. Empty where that
    cannot be told here: a file is missing, the identity, the task or vLLM had another version."""
    if config.get("identity", UNRECORDED) != IDENTITY_VERSION or "fingerprints" not in config:
        return set()
    try:
        cell = Cell.parsed({**config, "n": None, "timed": 0})
        if cell.engine.name != "lab" or config.get("task_contents") != cell.task_contents():
            return set()
        roles = [role for role in cell.roles if role in cell.pair.causal_roles]
        decoders = [dict(zip(some, chosen, strict=True)) for some in (roles, roles[:1])  # none of a draft cut out
                    for chosen in product(DECODERS, repeat=len(some))]
        return {cell.named(cell.identity(config["fingerprints"], one)) for one in decoders}
    except (ConfigError, ModelError, TaskError):
        return set()


def contradiction(folder: CellFolder) -> str:
    """Why a cell.yaml without a digest does not hold what was measured, in one line; empty where it does, or where that
    cannot be told. Raises StoreError."""
    config = None if folder.has_sealed_config() else folder.config()
    known = set() if config is None else names(config)
    if not known or folder.key in known:
        return ""
    return (f"{folder.path}/cell.yaml holds other settings than those that named its folder: restore it, or remove the "
            "folder to measure the cell anew")


def check_settings(*stores: Store) -> None:
    """Raises ConfigError for the first cell whose cell.yaml holds other settings than those that named it. What cannot
    be read is left to whoever reads it."""
    for store in stores:
        for entry in store.entries():
            if not entry.damage and (reason := contradiction(store.cell(entry.key))):
                raise ConfigError(reason)
