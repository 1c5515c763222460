"""Cells of a store that were measured under an earlier identity, found by their settings and models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.config.cell import Cell
from bench.config.errors import ConfigError
from bench.config.identity import IDENTITY_VERSION, UNRECORDED

if TYPE_CHECKING:
    from results.store.cells import Store


@dataclass(frozen=True, slots=True)
class Older:
    """A complete cell of an earlier identity.

    key       its folder
    baseline  that of its autoregressive baseline
    identity  its identity version
    """

    key: str
    baseline: str
    identity: int


def older_cells(store: Store) -> dict[str, Older]:
    """What they measured (`meaning`) -> the complete cells of earlier identities; of several the latest."""
    keys = {entry.key: entry.identity or UNRECORDED for entry in store.entries() if entry.complete}
    older = sorted((key for key, identity in keys.items() if identity < IDENTITY_VERSION), key=lambda key: keys[key])
    cells: dict[str, Older] = {}
    for content in store.contents(older):
        try:
            cell = Cell.parsed({**content.config, "n": None, "timed": 0})
        except ConfigError:  # an option that no longer exists: no current cell has these settings
            continue
        entry = content.entry
        cells[meaning(cell, content.config.get("fingerprints", {}))] = Older(entry.key, entry.baseline, keys[entry.key])
    return cells


def meaning(cell: Cell, models: Mapping[str, str]) -> str:
    """What a cell measures on models with these fingerprints, independent of its identity."""
    plain = cell.model_dump(mode="json", exclude={"n", "half_width", "timed", "pair"})
    return json.dumps({**plain, "pair": cell.pair.name, "models": dict(models)}, sort_keys=True)
