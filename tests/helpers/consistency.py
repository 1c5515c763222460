"""One number has one value: the same metric of the same cell must not differ between two files of a
set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

IDENTITY = ["cell", "seed", "n", "date", "value_name"]
"""What names a number: the cell, over how many prompts, measured when, and the metric."""
VALUES = ["value", "ci_low", "ci_high"]
OF_TABLE = ("over_best", "frontier_")
"""Metrics that begin so compare a cell with what is best in its own table: they are the same within
one file alone."""
OF_ROW = "equal_d_"
"""Metrics that begin so compare a cell at the temperature that its row asks for: two rows of a cell
may differ."""


def contradictions(paths: Iterable[Path]) -> tuple[set[str], list[str]]:
    """The files that were compared, and a line for each number that two of these CSV files, or two
    lines of one, give differently. Files without cells' names, those of traced positions, are left
    out."""
    frames = [pd.read_csv(path).assign(file=path.name) for path in paths]
    kept = [*IDENTITY, *VALUES]
    frames = [frame.dropna(subset=["cell", "value"]) for frame in frames if {*kept} <= {*frame}]
    if not frames:
        return set(), []
    found = []
    every = pd.concat(frames, ignore_index=True)
    every = every[~every["value_name"].str.startswith(OF_ROW)]
    every["table"] = every["file"].where(every["value_name"].str.startswith(OF_TABLE), "")
    for identity, rows in every.groupby([*IDENTITY, "table"], dropna=False):
        if len(rows[VALUES].drop_duplicates()) > 1:
            cell, _, n, _, name, _ = identity
            numbers = ", ".join(f"{row.value:.6g} in {row.file}" for row in rows.itertuples())
            found.append(f"{name} of {cell}, n = {n}: {numbers}")
    return set(every["file"]), found
