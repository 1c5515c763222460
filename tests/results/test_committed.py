"""The committed reports: each has its files, its command, and pictures of its own numbers."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from bench.pictures import content
from plots.render import DATA

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "results" / "measured"
LINE = re.compile(r"- \[[^]]+\]\((?P<shown>\S+)\): \[numbers\]\((?P<numbers>\w+\.csv(\.gz)?)\), \[environment\]"
                  r"\((?P<environment>\S+)\), `(?P<command>[^`]+)`")
REPORTS = {f"{listing.parent.name}/{found['numbers']}": (listing.parent, found) for listing in sorted(
    MEASURED.glob("*/TABLES.md")) for found in LINE.finditer(listing.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_names_its_own_command(report: str) -> None:
    folder, found = REPORTS[report]
    assert (folder / found["shown"]).exists() and (folder / found["numbers"]).exists()
    assert json.loads((folder / found["environment"]).read_text(encoding="utf-8"))["command"] == found["command"]


def test_every_committed_picture_shows_its_committed_numbers() -> None:
    pictures = sorted({*MEASURED.rglob("*.png"), *(ROOT / "docs").rglob("*.png")})
    assert len(pictures) > 20
    for picture in pictures:
        numbers = next(one for ending in (".csv", ".csv.gz") if (one := picture.with_suffix(ending)).exists())
        with Image.open(picture) as image:
            shown = image.info.get(DATA)
        assert shown == hashlib.sha256(content(numbers)).hexdigest(), f"{picture}: run `make pictures`"
