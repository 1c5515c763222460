"""README.md and docs/findings.md, filled from the committed CSV files, and docs/papers.md, filled from
conf/ (`make pages`).

docs/templates/NAME.j2 is a page with its numbers left out. In it
`{{ number("embedded_cpu/controls", "MARS sampling", "tau_gain") }}` names a file of
results/measured, labels of the row and a metric. A fourth value, "value", leaves out the interval,
"±" shortens it, "n" gives the number of prompts, and "verdict" what the report's judge says.
`measured("embedded_cpu/controls", "MARS sampling")` is whether it has such a row, for a sentence that
comes with the next measurement. `{{ settings("MARS") }}` is the table of a paper (`paper_settings.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bench.config.paths import PROJECT
from results.metrics.catalog import metric
from results.reports.columns import Column
from tests.helpers.paper_settings import settings

MEASURED = PROJECT / "results" / "measured"
TEMPLATES = PROJECT / "docs" / "templates"
PAGES = {
    "README.md.j2": PROJECT / "README.md",
    "findings.md.j2": PROJECT / "docs" / "findings.md",
    "papers.md.j2": PROJECT / "docs" / "papers.md",
}
"""Template -> the page that it makes."""


def filled(template: str) -> str:
    """A template with its numbers. Raises ValueError, one line, for a place without one."""
    jinja = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return jinja.get_template(template).render(number=number, measured=measured, settings=settings)


def number(file: str, labels: str, name: str, form: str = "") -> str:
    """The number of a committed row in words. Raises ValueError where not one cell has it."""
    place = f"{file} | {labels} | {name}"
    path = MEASURED / f"{file}.csv"
    if not path.exists():
        raise ValueError(f"{place}: no file {path}")
    wanted = set(labels.split("; "))
    rows = [
        row
        for row in rows_of(path)
        if row["value_name"] == name and wanted <= set(map(str, row.values()))
    ]
    cells = {row["cell"] for row in rows if not isnan(row["value"])}
    if len(cells) != 1:  # several tables of a report may show a cell
        raise ValueError(f"{place}: {len(cells)} cells of {path} have these labels and this metric")
    return words(rows[0], name, form)


def measured(file: str, labels: str) -> bool:
    """Whether a committed file has a measured row with these labels."""
    wanted = {*labels.split("; "), "measured"}
    return any(wanted <= set(map(str, row.values())) for row in rows_of(MEASURED / f"{file}.csv"))


def words(row: Mapping[Any, Any], name: str, form: str) -> str:
    """A row's value with its unit and interval, in the form of `number`."""
    if form == "n":
        return str(int(row["n"]))
    if form == "verdict":
        return str(row["verdict"])
    column = Column(metric=metric(name))
    unit = column.measure.unit
    space = "" if unit in ("", "×", "%") else " "
    value = f"{column.text(row['value'])}{space}{unit}"
    ends = None if isnan(row["ci_low"]) else (row["ci_low"], row["ci_high"])
    interval = {
        "": column.interval_text(ends),
        "±": column.short_interval_text(row["value"], ends),
        "value": "",
    }[form]
    return f"{value} {interval}".strip()


@cache
def rows_of(path: Path) -> list[dict[Any, Any]]:
    """The rows of a CSV file."""
    return pd.read_csv(path).to_dict("records")


if __name__ == "__main__":
    for template, page in PAGES.items():
        page.write_text(filled(template), encoding="utf-8")
