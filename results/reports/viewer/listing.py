"""A table of all cells of a store, a row each, which the page's script sorts and filters as any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup

from results.metrics.catalog import metric
from results.reports.columns import Column
from results.reports.formats import TEMPLATES
from results.reports.table import Number
from results.reports.viewer.groups import Group, Viewed
from results.store.reasons import printable

NAME: Final = "cells"
"""The section's id."""
COLUMNS: Final = tuple(Column(metric=metric(name)) for name in (
    "tau", "speedup", "answer_speedup_modelled", "length_ratio", "accuracy", "precision", "relaxed_share", "nll"))


def listing(groups: Sequence[Group], folded: bool = False) -> Markup:
    """The section with the table, behind a click if `folded`; a cell that is not complete has its answers' number
    alone."""
    rows = [(group, cell, len(cell.samples), numbers_of(cell)) for group in groups for cell in group.cells]
    return Markup(TEMPLATES.get_template("cells.html.j2").render(rows=rows, columns=COLUMNS, folded=folded))


def numbers_of(cell: Viewed) -> list[Number]:
    """The cell's numbers, one per column."""
    summary = cell.summary
    return [Number(column) if summary is None else
            Number(column, summary.value(column.metric.name), summary.interval(column.metric.name))
            for column in COLUMNS]


def listing_facts(groups: Sequence[Group]) -> dict[str, dict[str, Any]]:
    """Key of a cell -> what the page tells of its numbers."""
    return {cell.key: {"cell": cell.key, "n": str(len(cell.samples)), "timed": str(len(cell.timed)),
                       "session": printable(", ".join(sorted({row.started[:16] for row in cell.timed})))}
            for group in groups for cell in group.cells}
