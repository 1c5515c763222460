"""The tables that follow a report's own, and their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results.metrics import equal_d
from results.reports.axes import AS_GIVEN, SETTING, drop_impossible, without_frontier
from results.reports.columns import Column

if TYPE_CHECKING:
    from results.reports.choice import Choice
    from results.reports.spec import TableSpec

ANSWER_COSTS = (
    "answer_speedup_modelled",
    "length_ratio",
    "accuracy_change",
    "truncated_share",
    "answer_speedup",
    "decode_speedup",
    "loop_share",
)
TRACED_COSTS = ("out_of_head_1k",)
"""The metrics of the second table of a report that shows accuracy."""
EQUAL_D = tuple(metric.name for metric in equal_d.EQUAL_D)
VERDICT = (*EQUAL_D, "tau", "nll", "accuracy")
"""What the verdict stands on, and beside it."""
SETTINGS = ("tau", "speedup_modelled", "speedup", "accuracy")
"""The metrics of the table of every setting."""


def first_table(spec: TableSpec) -> TableSpec:
    """The report's own table: without the axes that its rows choose from, and without the rows of
    the frontier."""
    table = spec if spec.choice is None else spec.chosen()
    return table.model_copy(update={"axes": without_frontier(table.axes)})


def further_tables(spec: TableSpec) -> list[TableSpec]:
    """What an answer costs, under a table that shows accuracy, a row for each cell. Where rows
    choose, also what their verdicts stand on, with the lossless rows that they are compared with,
    and every setting."""
    first, shown, tables = first_table(spec), {column.metric.name for column in spec.values}, []
    if "accuracy" in shown:
        names = (*ANSWER_COSTS, *(TRACED_COSTS if spec.trace else ()))
        costs = [name for name in names if name not in shown]
        tables.append(_listed(first, "answers", "cost of an answer", costs))
    if spec.choice is None:
        return tables
    tables.append(_listed(spec.chosen(), "verdict", "beside lossless decoding", VERDICT))
    return tables + [table for table in [_every_setting(spec, spec.choice)] if table.points()]


def _every_setting(spec: TableSpec, choice: Choice) -> TableSpec:
    """A row for each setting of the rows that have several."""
    axes = drop_impossible(without_frontier(spec.axes))
    if choice.axes == (SETTING,):
        axes[SETTING] = tuple(entry for entry in axes[SETTING] if entry.label != AS_GIVEN)
    full = spec.model_copy(
        update={"axes": axes, "choice": None, "rows": (*spec.rows, *choice.axes)}
    )
    return _listed(full, "settings", "every setting, on all prompts", SETTINGS)


def _listed(table: TableSpec, name: str, title: str, metrics: Sequence[str]) -> TableSpec:
    """A further table of the report, with a row for each cell."""
    layout: dict[str, Any] = {
        "rows": (*table.columns, *table.rows),
        "columns": (),
        "mean": None,
        "published": None,
    }
    values = tuple(Column.model_validate(metric) for metric in metrics)
    layout["reading"] = ()
    return table.model_copy(
        update={
            "name": f"{table.name}_{name}",
            "title": f"{table.title}: {title}",
            "values": values,
            **layout,
        }
    )
