"""Every value, interval and p-value of the cells of both archives, computed from their samples.

What is frozen is the summary that each archive holds beside the samples; data/values.json.xz has only those values
that the code gave otherwise when the rebuilding began. `found_now` is the only function that knows how a summary is
made."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.metrics import metric as estimators
from results.metrics.catalog import METRICS
from tests.oracles.archives import ARCHIVES, cell_of, session_on, summaries, unpacked
from tests.oracles.frozen import Result, differences, read, renames, write

SHARE = 8
"""One cell in so many is compared, always the same ones; all with `values:all`: today a cell takes a second."""
NO_METRIC = ("asked", "definitions", "samples", "digest")
Values = dict[str, Any]


def found_now(store: Path, frozen: dict[str, Values]) -> Iterator[tuple[str, Values]]:
    """Each of these cells with its metrics, `X` and `X_ci95`, over as many prompts as its frozen summary, computed from
    its samples and from those of the cells that it is compared with."""
    with session_on(store) as (session, _):
        for key, summary in frozen.items():
            cell = cell_of(store, key, summary["asked"], summary["timed"])
            found = session.compared(cell) if cell.name == key else None
            yield key, {} if found is None else json.loads(json.dumps(found.plain()))


def chosen(keys: list[str], part: str) -> list[str]:
    """All of them, those with `part` in their name, or the share that an ordinary run compares."""
    if part:
        return [key for key in keys if part == "all" or part in key]
    return [key for key in keys if zlib.crc32(key.encode()) % SHARE == 0]


def pairs(part: str) -> Iterator[tuple[str, Values, Values]]:
    """Each chosen cell with its frozen values and those of now."""
    for archive in ARCHIVES:
        with unpacked(archive) as store:
            frozen = summaries(store)
            wanted = {key: frozen[key] for key in chosen(list(frozen), part)}
            for key, found in found_now(store, wanted):
                yield key, {name: value for name, value in frozen[key].items() if name not in NO_METRIC}, found


def freeze(part: str = "all") -> None:
    """Write data/values.json.xz."""
    others = {}
    for key, frozen, found in pairs(part or "all"):
        differing = {name: found.get(name) for name in frozen if list(differences(frozen[name], found.get(name)))}
        if differing:
            others[key] = differing
    print(write("values", others))


def compare(part: str = "") -> Result:
    """Compare with the frozen values. A value that is None need not be there."""
    result, others, changes = Result(), read("values"), renames()["values"]
    gone = {name for metric in changes["removed"] for name in (metric, f"{metric}_ci95")}
    new = {old + end: name + end for old, name in changes["renamed"].items() for end in ("", "_ci95")}
    for key, frozen, found in pairs(part):
        for name, value in (frozen | others.get(key, {})).items():
            metric = METRICS.get(name.removesuffix("_ci95"))
            is_student = metric is not None and metric.name != name and metric.estimated_by(False) in (
                estimators.STUDENT, estimators.SHARE)
            if name not in gone and not is_student:  # a bootstrap when the values were frozen
                result.check(f"{key}: {name}", value, found.get(new.get(name, name)))
    return result
