"""The tables of docs/papers.md: rows of docs/templates/papers.yaml, with the values that the papers'
editions of the reports are composed with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from bench.config.compose import composer
from bench.config.paths import CONF, PROJECT
from bench.reports.overrides import PairSelection
from bench.reports.plan import uncollected
from results.reports.spec import parse_report

ROWS = PROJECT / "docs" / "templates" / "papers.yaml"
HEADER = "| report | setting | paper | preset | why |\n|:--|:--|:--|:--|:--|\n"
ENTRY = re.compile(r"(?P<shows>shows )?(?P<key>[\w.]+)(?: at (?P<label>.+))?")
ABSENT = object()
MEANINGS = "similarity=papers"
"""What scale=paper adds to reports that compare meanings."""
Labels = Mapping[str, str]
"""Axis -> label of a point."""


@cache
def edition(report: str) -> tuple[Any, list[tuple[Labels, dict[str, Any]]]]:
    """A report's edition on the paper's pairs, and for each of its points the labels and the
    composed configuration."""
    with composer() as hydra, uncollected():
        given = parse_report(hydra.section("report", report))
        spec = PairSelection.from_overrides(["scale=paper"]).edition(given)
        points = [
            (spec.labels(point.coords), hydra.point([*point.overrides, MEANINGS]).config)
            for point in spec.points()
            if not any(entry.no_cell for entry in spec.entries(point.coords).values())
        ]
    return spec, points


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; ABSENT where the configuration has none."""
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return ABSENT
        found = found[part]
    return found.removeprefix(f"{PROJECT}/") if isinstance(found, str) else found


def preset(reports: Sequence[str], entry: str) -> str:
    """What an entry of a row says of these reports. Raises ValueError where they do not have it."""
    parts = ENTRY.fullmatch(entry)
    if parts is None:
        raise ValueError(f"{entry}: give KEY, KEY at LABEL or shows METRIC")
    key, label = parts["key"], parts["label"]
    if parts["shows"]:
        for report in reports:
            spec = edition(report)[0]
            names = spec.metrics()
            if key not in names:
                raise ValueError(f"{report} shows {', '.join(names)}, not {key}")
        return f"`{key}`"
    by_value: dict[str, list[str]] = {}
    for report in reports:
        for text, labels in _values(report, key, label):
            known = by_value.setdefault(text, [])
            known += [name for name in labels if name not in known]
    if len(by_value) > 1:
        by_value.pop("null", None)
    if not by_value:
        raise ValueError(f"{', '.join(reports)}: no point has {entry}")
    if label is not None and len(by_value) == 1:
        return f"`{key}={next(iter(by_value))}` at {label}"
    named = all(text in name for text, names in by_value.items() for name in names)
    if named or len(by_value) == 1:
        return f"`{key}={', '.join(by_value)}`"
    return "; ".join(f"`{key}={text}` at {', '.join(names)}" for text, names in by_value.items())


def _values(report, key, label):
    """Each value that points of a report have, as text, and the labels of the axis that decides it:
    the report's name where it decides alone."""
    chosen = [
        (labels, text(value))
        for labels, config in edition(report)[1]
        if (label is None or label in labels.values())
        and (value := value_at(config, key)) is not ABSENT
    ]
    distinct = list(dict.fromkeys(value for _, value in chosen))
    if len(distinct) == 1:
        yield distinct[0], [report]
    if len(distinct) < 2:
        return
    for axis in chosen[0][0]:
        of_label = {labels[axis]: value for labels, value in chosen}
        if all(of_label[labels[axis]] == value for labels, value in chosen):
            for value in distinct:
                yield value, [name for name, its in of_label.items() if its == value]
            return
    raise ValueError(f"{report}: {key} is {', '.join(distinct)}, which no one axis decides")


def text(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def settings(paper: str) -> str:
    """The table of a paper, in Markdown."""
    lines = []
    for row in yaml.safe_load(ROWS.read_text(encoding="utf-8"))[paper]:
        presets = "; ".join(preset(row["reports"], entry) for entry in row["preset"])
        cells = [", ".join(row["reports"]), row["setting"], row["paper"], presets, row["why"]]
        lines.append(f"| {' | '.join(cells)} |")
    return HEADER + "\n".join(lines)


def without_rows() -> set[str]:
    """The papers' reports of which no row says anything."""
    papers = ("mars", "fsd", "dropmatch", "arc")
    every = {path.stem for path in (CONF / "report").glob("*.yaml")}
    papers_rows = yaml.safe_load(ROWS.read_text()).values()
    named = {report for rows in papers_rows for row in rows for report in row["reports"]}
    return {report for report in every - named if report.partition("_")[0] in papers}
