"""The numbers, verdicts, notes and captions of the committed tables and figures, drawn again from both archives.

Without traces: what a table reads from traces is missing in it, then as now. `drawn` is the only function that knows
how a report is made. The summaries of the archives are taken as they are; `values` computes them."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from bench.config.compose import Composer
from bench.reports.plan import plan_of
from bench.reports.run import load_report
from bench.run.session import Session
from plots.render import data_of
from results.reports.formats import figure_csv, long_csv
from results.reports.frame import lay_out_all
from results.reports.spec import TableSpec
from tests.oracles.archives import ARCHIVES, measured, overrides_of, session_on, unpacked
from tests.oracles.frozen import PROJECT, Result, portable, read, renames, write

NOT_ARCHIVED = ("in_engine", "in_engine_fig")
Lines = dict[str, Any]


def drawn(hydra: Composer, session: Session, name: str, overrides: list[str]) -> tuple[str, list[Lines]]:
    """The name of the report's files; the lines of its CSV, and behind them the texts of each of its tables."""
    plan = plan_of(load_report(name, hydra), hydra, overrides)
    grid = plan.grid(session)
    if isinstance(plan.spec, TableSpec):
        tables = lay_out_all(plan.spec, grid)
        text = long_csv(tables)
    else:
        text, tables = figure_csv(plan.spec, data_of(plan.spec, grid).frame), []
    lines: list[Lines] = list(csv.DictReader(io.StringIO(text)))
    return plan.spec.name, [*lines, *({"title": table.spec.title, "notes": list(table.notes) if table.caption else []}
                                      for table in tables)]


def commands(archive: str, part: str) -> Iterator[tuple[str, list[str]]]:
    """The report and overrides of each command of TABLES.md, of cells that the archive has."""
    for words in re.findall(r"`python -m bench (report=[^`]*)`", (measured(archive) / "TABLES.md").read_text()):
        report, *overrides = shlex.split(words)
        name = report.removeprefix("report=")
        if name not in NOT_ARCHIVED and (part in name or part == "all"):
            yield name, overrides


def found_now(part: str = "") -> dict[str, list[Lines]]:
    """Archive/file -> what the code draws now."""
    found = {}
    for archive in ARCHIVES:
        with unpacked(archive) as store, session_on(store) as (session, hydra):
            for name, overrides in commands(archive, part):
                file, lines = drawn(hydra, session, name, overrides_of(overrides))
                found[f"{archive}/{file}"] = portable(lines)
    return found


def committed(place: str) -> list[Lines]:
    """The lines of a committed CSV file; those of a drawn one that are the same are not kept twice."""
    path = measured(place.partition("/")[0]) / f"{place.partition('/')[2]}.csv"
    return list(csv.DictReader(path.open())) if path.exists() else []


def freeze(part: str = "") -> None:
    """Write data/reports.json.xz. A number stands for a line of the committed file."""
    kept = {}
    for place, lines in found_now(part).items():
        known = {json.dumps(line): number for number, line in enumerate(committed(place))}
        kept[place] = [known.get(json.dumps(line), line) for line in lines]
    print(write("reports", kept))


def compare(part: str = "") -> Result:
    """Compare with the frozen lines."""
    result, changes = Result(), renames()["values"]
    found = found_now(part)
    listed = yaml.safe_load((PROJECT / "results" / "measured" / "awaiting.yaml").read_text(encoding="utf-8"))
    awaiting = {f"{folder}/{name}" for folder, names in listed.items() for name in names}
    for place, kept in read("reports").items():
        if place in changes["gone"] or place not in found:
            if place not in changes["gone"] and not part:
                result.check(place, "drawn", "not drawn")
            continue
        lines, now = committed(place), found[place]
        if place in awaiting:
            print(f"        {place}: awaits measuring ({len(lines)} lines committed, {len(now)} drawn)")
            if [_numbers(line) for line in lines] == [_numbers(line) for line in now]:
                result.check(place, "awaits measuring (results/measured/awaiting.yaml)", "measured")
            continue
        frozen = [lines[line] if isinstance(line, int) else line for line in kept]
        redrawn = {*changes["removed"], *changes["redrawn"]}
        names = {changes["renamed"].get(line.get("value_name"), line.get("value_name")) for line in frozen} - redrawn
        frozen = [line for line in frozen if line.get("value_name") not in redrawn]
        rows = {line.get("Rule") for line in frozen}
        now = [line for line in now if line.get("value_name") in names and line.get("Rule") in rows]
        if len(frozen) != len(now):
            result.check(f"{place}: lines", len(frozen), len(now))
            continue
        for number, (line, other) in enumerate(zip(frozen, now, strict=True)):
            other = {name: value for name, value in other.items() if name not in changes["columns"]}
            result.check(f"{place} line {number} {line.get('value_name', '')}", _as_now(line), _numbers(other))
    return result


def _as_now(line: Lines) -> Lines:
    """A frozen line as it is meant to be now."""
    changes = renames()["values"]
    text = json.dumps(line, ensure_ascii=False)
    for before, after in changes["texts"].items():
        text = text.replace(before, after)
    line = {name: value for name, value in json.loads(text).items() if name not in changes["columns"]}
    if line.get("value_name") in changes["renamed"]:
        line["value_name"] = changes["renamed"][line["value_name"]]
    return _numbers(line)


def _numbers(line: Lines) -> Lines:
    """A line of a CSV file with its numbers as numbers."""
    def number(value: Any) -> Any:
        try:
            return float(value)
        except (TypeError, ValueError):
            return value

    return {name: number(value) for name, value in line.items()}
