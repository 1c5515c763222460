"""The tree that is cheapest with a head, as the file tree.json beside its weights says."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.config.cell import Cell

log = logging.getLogger(__name__)
FILE = "tree.json"
"""`nodes` and `beams` as in conf/pair, and `measured`: where."""


def say_measured_trees(cells: Iterable[Cell]) -> None:
    """Warn of each head whose pair grows another dynamic tree than the one measured as cheapest."""
    for note in dict.fromkeys(filter(None, map(measured_tree, cells))):
        log.warning(note)


def measured_tree(cell: Cell) -> str:
    """Which tree is cheaper than that of the cell; empty where none is known, or the command names a tree."""
    drafter, pair = cell.drafter.options, cell.pair
    if getattr(drafter, "tree", "") != "dynamic" or (drafter.total, drafter.top_k) != (pair.nodes, pair.beams):
        return ""
    source = pair.checkpoint(cell.roles[1]).source
    if not (file := Path(source, FILE)).is_file():
        return ""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        nodes, beams, where = found["nodes"], found["beams"], found["measured"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: must be a JSON object with nodes, beams and measured") from error
    if (nodes, beams) == (pair.nodes, pair.beams):
        return ""
    return (f"pair.{cell.roles[1]}={source}: trees of {nodes} nodes and {beams} beams were cheapest ({where}); this "
            f"pair has {pair.nodes} and {pair.beams}: give pair.nodes={nodes} pair.beams={beams}")
