"""The tables that follow a report's own, and their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results.reports.axes import AS_GIVEN, SETTING, drop_impossible, without_frontier
from results.reports.columns import Column

if TYPE_CHECKING:
    from results.reports.choice import Choice
    from results.reports.spec import TableSpec

READ = {
    "answers": (
        "answer_speedup_modelled",
        "length_ratio",
        "accuracy_change",
        "truncated_share",
        "no_answer_share",
        "pass_ratio",
    ),
    "frontier": (
        "equal_d_distortion",
        "equal_d_tv",
        "equal_d_outside",
        "equal_d_speed",
        "equal_d_speed_own",
        "equal_d_answer",
        "equal_d_length",
        "accuracy",
        "tau",
    ),
    "over_best": (
        "equal_d_distortion",
        "equal_d_speed",
        "over_best_answer",
        "over_best_length",
        "over_best_accuracy",
    ),
}
"""Table -> its columns in the short form, the most important first; of others the first ones that
fit."""
ANSWER_COSTS = (
    "answer_speedup_modelled",
    "answer_speedup",
    "length_ratio",
    "pass_ratio",
    "truncated_share",
    "loop_share",
    "no_answer_share",
    "accuracy_change",
)
TRACED_COSTS = ("out_of_head_1k",)
"""The metrics of the second table of a report that shows accuracy."""
OVER_BEST = (
    "over_best_tau",
    "over_best_length",
    "over_best_answer",
    "over_best_accuracy",
)
"""The metrics of the table that compares rows with the best lossless one."""
EQUAL_D = (
    "equal_d_distortion",
    "equal_d_tv",
    "equal_d_outside",
    "equal_d_speed",
    "equal_d_speed_own",
    "equal_d_answer",
    "equal_d_length",
    "equal_d_temperature",
)
"""What the verdict stands on."""
FRONTIER = (
    "tau",
    "nll",
    "accuracy",
)
"""The metrics of the table that compares rows with the frontier of lossless decoding."""
SETTINGS = (
    "tau",
    "answer_speedup_modelled",
    "answer_speedup",
    "speedup_modelled",
    "speedup",
    "length_ratio",
    "length_adjusted_speedup",
    "accuracy",
)
"""The metrics of the table of every setting."""


def first_table(spec: TableSpec) -> TableSpec:
    """The report's own table: without the axes that its rows choose from, and without the rows of
    the frontier."""
    table = spec if spec.choice is None else spec.chosen()
    return table.model_copy(update={"axes": without_frontier(table.axes)})


def further_tables(spec: TableSpec) -> list[TableSpec]:
    """What an answer costs, under a table that shows accuracy, a row for each cell. Rows that
    choose are also compared with the best lossless one and with the frontier, and every setting is
    listed."""
    first, shown, tables = first_table(spec), {column.metric.name for column in spec.values}, []
    if "accuracy" in shown:
        costs = [
            name
            for name in (*ANSWER_COSTS, *(TRACED_COSTS if spec.trace else ()))
            if name not in shown
        ]
        tables.append(_listed(first, "answers", "cost of an answer", costs))
    if spec.choice is None:
        return tables
    decides = () if spec.choice.frontier else EQUAL_D
    tables.append(
        _listed(first, "over_best", "over the best lossless method", (*decides, *OVER_BEST))
    )
    if spec.choice.frontier:
        tables.append(
            _listed(
                spec.chosen(),
                "frontier",
                "beside the frontier of lossless decoding",
                (*EQUAL_D, *FRONTIER),
            )
        )
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
    layout["reading"] = tuple(metric for metric in READ.get(name, ()) if metric in metrics)
    return table.model_copy(
        update={
            "name": f"{table.name}_{name}",
            "title": f"{table.title}: {title}",
            "values": values,
            **layout,
        }
    )
