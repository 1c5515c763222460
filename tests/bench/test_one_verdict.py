"""One rule at one setting has one verdict, in whatever report it stands."""

from __future__ import annotations

import yaml

from bench.config.cell import Cell
from bench.config.paths import CONF
from bench.reports.choice import CONTROLS, reference, split
from bench.reports.plan import Plan, plan_of, uncollected
from bench.reports.run import load_report
from results.metrics.verdict import FAMILY
from results.reports.spec import Coords, TableSpec


def compared(plan: Plan) -> dict[str, tuple[Coords, frozenset[str]]]:
    """Cell of a rule -> its row, and the lossless cells that it is compared with."""
    spec, rows = plan.spec, dict[Coords, list[Cell]]()
    assert isinstance(spec, TableSpec) and spec.choice is not None
    choice = spec.choice
    for coords, cell in plan.cells.items():
        rows.setdefault(split(spec, choice, coords)[0], []).append(cell)
    cooler = [entry.label for axis in spec.axes.values() for entry in axis if entry.frontier]
    labels = [choice.lossless, *cooler] if choice.frontier else [choice.lossless]
    return {
        cell.unread_name: (
            row,
            frozenset(
                other.unread_name
                for label in labels
                for other in rows.get(reference(spec, row, label), ())
            ),
        )
        for row, cells in rows.items()
        for cell in cells
        if not cell.is_lossless and cell.rule.name not in CONTROLS
    }


def test_a_cell_is_compared_with_the_same_lossless_cells_in_every_report(hydra):
    """So that one rule at one setting has one verdict; the longest report is the family that all
    are corrected for."""
    reports = {
        name: yaml.safe_load((CONF / f"report/{name}.yaml").read_text(encoding="utf-8"))
        for name in hydra.options("report")
    }
    cells: dict[str, frozenset[str]] = {}
    most = 0
    for name in (name for name, report in reports.items() if "choice" in report):
        rule = ["rule=near_top"]
        given = {"my_rule": rule, "evidence": rule, "workload": ["task=mini_chat"]}
        words = given.get(name, [])
        with uncollected():
            rows = compared(plan_of(load_report(name, hydra), hydra, words))
        most = max(most, len({row for row, _ in rows.values()}))
        for cell, (row, lossless) in rows.items():
            assert lossless and cells.setdefault(cell, lossless) == lossless, (name, row)
    assert len(cells) > 100 and most <= FAMILY
