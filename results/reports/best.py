"""Which numbers of a table are printed in bold: only what a paired comparison with the others supports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from results.metrics.paired import best_of
from results.reports.table import Number, Row, groups_of


def mark_best(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Mark the best numbers of each column within a group of rows. Baselines neither compete nor win."""
    marked: list[Row] = []
    for _, group in groups_of(rows):
        rivals = [row for row in group if not row.baseline]
        best = iter(_with_best(rivals))
        marked += [row if row.baseline else next(best) for row in group]
    return tuple(marked)


def _with_best(rivals: Sequence[Row]) -> list[Row]:
    if not rivals:
        return []
    columns = [[_marked([row.cells[c].numbers[i] for row in rivals]) for i in range(len(cell.numbers))]
               for c, cell in enumerate(rivals[0].cells)]
    return [replace(row, cells=tuple(replace(cell, numbers=tuple(column[r] for column in columns[c]))
                                     for c, cell in enumerate(row.cells)))
            for r, row in enumerate(rivals)]


def _marked(column: Sequence[Number]) -> list[Number]:
    metric = column[0].column.metric
    best = best_of(metric.name, [number.value for number in column], [number.items for number in column], metric.better)
    if 2 * sum(best) > sum(number.value is not None for number in column) > 1:
        best = [False] * len(column)  # a mark that most rows bear says nothing
    return [replace(number, best=is_best) for number, is_best in zip(column, best, strict=True)]
