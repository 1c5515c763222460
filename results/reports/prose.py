"""`python -m results.reports.prose`: write the numbers of README.md and docs/findings.md from the
committed CSV files.

A block is a comment with a template, what it says, and a closing comment:

    <!-- numbers
    MARS gains {{embedded_cpu/gains | MARS sampling | tau_gain}} tokens a cycle.
    -->
    MARS gains +0.76 [+0.48, +1.05] tokens a cycle.
    <!-- end -->

A place in double braces names a file of results/measured, the labels of the row with `;` between
them, and a metric; after a fourth bar, `value` leaves out the interval, `±` shortens it, `n` gives
the number of prompts, and `verdict` what the report's judge says of the row."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from results.metrics.catalog import metric
from results.reports.columns import Column

FILES = ("README.md", "docs/findings.md")
MEASURED = Path("results/measured")
_BLOCK = re.compile(
    r"<!-- numbers(?P<name>.*?)\n(?P<template>.*?)-->\n(?P<said>.*?)<!-- end -->", re.DOTALL
)
_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def rendered(text: str) -> str:
    """The page with each block's numbers as in the CSV files. Raises ValueError, one line, for a
    place without one."""

    def block(found: re.Match[str]) -> str:
        said = _PLACE.sub(lambda place: _number(place[1]), found["template"])
        return f"<!-- numbers{found['name']}\n{found['template']}-->\n{said}<!-- end -->"

    return _BLOCK.sub(block, text)


def _number(place: str) -> str:
    place = " ".join(place.split())
    parts = [part.strip() for part in place.split("|")]
    if len(parts) not in (3, 4):
        raise ValueError(
            f"{{{{{place}}}}}: a place is FILE | LABEL; LABEL … | METRIC, and perhaps | FORM"
        )
    file, labels, name, form = (*parts, "")[:4]
    path = MEASURED / f"{file}.csv"
    if not path.exists():
        raise ValueError(f"{{{{{place}}}}}: no file {path}")
    rows = [
        row
        for row in _rows(path)
        if row["value_name"] == name and set(labels.split("; ")) <= set(map(str, row.values()))
    ]
    cells = {
        row["cell"] for row in rows if not isnan(row["value"])
    }  # several tables of a report may show a cell
    if len(cells) != 1:
        raise ValueError(
            f"{{{{{place}}}}}: {len(cells)} cells of {path} have these labels and this metric, "
            "one is needed"
        )
    return _text(rows[0], name, form)


def _text(row: Mapping[Any, Any], name: str, form: str) -> str:
    ends = None if isnan(row["ci_low"]) else (row["ci_low"], row["ci_high"])
    column = Column(metric=metric(name))
    if form == "n":
        return str(int(row["n"]))
    if form == "verdict":
        return str(row["verdict"])
    unit = metric(name).unit
    value = f"{column.text(row['value'])}{f' {unit}' if unit not in ('', '×', '%') else unit}"
    interval = {
        "": column.interval_text(ends),
        "±": column.short_interval_text(row["value"], ends),
        "value": "",
    }[form]
    return f"{value} {interval}".strip()


@cache
def _rows(path: Path) -> list[dict[Any, Any]]:
    return pd.read_csv(path).to_dict("records")


def main() -> int:
    for name in FILES:
        path = Path(name)
        try:
            path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
        except ValueError as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
