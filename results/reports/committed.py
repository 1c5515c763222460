"""What of a report is committed: its files in results/measured, one folder for each pair."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection
from pathlib import Path

MEASURED = Path(__file__).parents[1] / "measured"
ALONE = "tiny"
"""The pair whose files have the report's name alone; another pair's name follows it."""


def committed(report: str, pairs: Collection[str], folder: Path = MEASURED) -> str:
    """`tiny n=64 2026-11-23; smollm2 n=40 2026-11-24`, or a dash: pair, prompts and last day of each edition of a
    report on one of these pairs that is kept in `folder`. Figures of traced positions keep no number of prompts."""
    found = []
    for path in sorted(folder.glob(f"*/{report}*.environment.json")):
        edition = path.name.removesuffix(".environment.json")
        pair = edition.removeprefix(report).removeprefix("_") or ALONE
        if pair not in pairs:
            continue  # of another report, whose name begins alike
        with (path.parent / f"{edition}.csv").open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        columns = [header.index("n"), header.index("date")] if {"n", "date"} <= set(header) else []
        held = {(row[columns[0]], row[columns[1]]) for row in rows if columns and row[columns[0]]}
        counts = sorted({int(float(n)) for n, _ in held})
        prompts = f" n={' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}" if counts else ""
        since = str(json.loads(path.read_text(encoding="utf-8"))["since"])[:10]
        found.append(f"{pair}{prompts} {max((date for _, date in held), default=since)}")
    return "; ".join(found) or "–"
