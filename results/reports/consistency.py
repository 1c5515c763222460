"""One number has one value: the same metric of the same cell must not differ between two files of a set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

IDENTITY = ["cell", "seed", "n", "value_name"]
"""What names a number: the cell, over how many prompts, and the metric."""
VALUES = ["value", "ci_low", "ci_high"]


def contradictions(paths: Iterable[Path]) -> list[str]:
    """A line for each number that two of these CSV files, or two lines of one, give differently. Files without cells'
    names, those of traced positions, are left out."""
    frames = []
    for path in paths:
        frame = pd.read_csv(path)
        if {*IDENTITY, *VALUES} <= set(frame):
            frames.append(frame[[*IDENTITY, *VALUES]].assign(file=path.name).dropna(subset=["cell", "value"]))
    if not frames:
        return []
    found = []
    for identity, rows in pd.concat(frames, ignore_index=True).groupby(IDENTITY, dropna=False):
        if len(rows[VALUES].drop_duplicates()) > 1:
            cell, _, n, name = identity
            numbers = ", ".join(f"{row.value:.6g} in {row.file}" for row in rows.itertuples())
            found.append(f"{name} of {cell}, n = {n}: {numbers}")
    return found
