"""The committed reports: each has its files, its command, and pictures of its own numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "results" / "measured"
LINE = re.compile(r"- \[[^]]+\]\((?P<shown>\S+)\): \[numbers\]\((?P<numbers>\w+\.csv)\), \[environment\]"
                  r"\((?P<environment>\S+)\), `(?P<command>[^`]+)`")
REPORTS = {f"{listing.parent.name}/{found['numbers']}": (listing.parent, found) for listing in sorted(
    MEASURED.glob("*/TABLES.md")) for found in LINE.finditer(listing.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_names_its_own_command(report: str) -> None:
    folder, found = REPORTS[report]
    assert (folder / found["shown"]).exists() and (folder / found["numbers"]).exists()
    assert json.loads((folder / found["environment"]).read_text(encoding="utf-8"))["command"] == found["command"]
