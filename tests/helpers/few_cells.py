"""A report cut down to a few of its cells."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.config.paths import CONF
from results.reports.scales import with_editions

NAME = "few_cells"


def few_cells(folder: Path, report: str, **kept: Sequence[str]) -> list[str]:
    """Write `report=few_cells` under `folder`: the report with these labels of these axes. Returns the flags that let a
    command find it."""
    spec = with_editions(yaml.safe_load((CONF / "report" / f"{report}.yaml").read_text()))
    spec["name"] = NAME
    spec["axes"] |= {axis: [entry for entry in spec["axes"][axis] if entry["label"] in labels]
                     for axis, labels in kept.items()}
    (folder / "conf" / "report").mkdir(parents=True)
    (folder / "conf" / "report" / f"{NAME}.yaml").write_text(yaml.safe_dump(spec))
    return ["-cd", str(folder / "conf")]


def table(output: Path) -> list[dict[str, str]]:
    """The numbers of the rendered report: one row for each metric of each cell."""
    with (output / "report" / f"{NAME}.csv").open() as file:
        return list(csv.DictReader(file))
