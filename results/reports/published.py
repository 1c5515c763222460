"""The numbers that papers print: results/published/*.csv with the columns pair, row, column, value_name, value."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[1] / "published"
COLUMNS = ["pair", "row", "column", "value_name", "value"]
Numbers = dict[tuple[str, str, str, str], float]


def load_published(file: str) -> Numbers:
    """All numbers of one file by (pair, row, column, value_name). Raises ValueError for a missing or malformed file."""
    path = FOLDER / file
    if not path.exists():
        known = ", ".join(sorted(found.name for found in FOLDER.glob("*.csv")))
        raise ValueError(f"published.file={file}: no such file; there are {known}")
    table = pd.read_csv(path, dtype={name: str for name in COLUMNS[:-1]})
    if list(table.columns) != COLUMNS or table.isna().any(axis=None) or table.duplicated(COLUMNS[:-1]).any():
        raise ValueError(f"{path}: needs the columns {','.join(COLUMNS)}, no gaps and no line twice")
    return dict(zip(table[COLUMNS[:-1]].itertuples(index=False, name=None), table["value"].astype(float), strict=True))
