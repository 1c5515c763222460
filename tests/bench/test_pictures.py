"""Pictures of kept reports, drawn from their CSV files alone."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from PIL import Image

from bench.pictures import MEASURED, main
from plots.render import DATA

NAMES = ("arc_fig5", "fsd_fig3", "mars_fig3")
"""A sweep, a figure of traced positions, and one whose CSV file is older than an axis of the
report."""


def test_pictures_are_drawn_from_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMES:
        for ending in ("csv", "environment.json"):
            shutil.copy(MEASURED / "embedded_cpu" / f"{name}.{ending}", tmp_path)
        (tmp_path / f"{name}.png").touch()
    shutil.copy(MEASURED / "embedded_cpu" / "TABLES.md", tmp_path)
    with (tmp_path / "arc_fig5.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert main([str(tmp_path)]) == 0
    assert [Path(line).stem for line in capsys.readouterr().out.splitlines()] == list(NAMES), (
        "what has no PNG is left"
    )
    for name in NAMES:
        with Image.open(tmp_path / f"{name}.png") as image:
            assert (
                image.info[DATA]
                == hashlib.sha256((tmp_path / f"{name}.csv").read_bytes()).hexdigest()
            )
            assert len(set(image.convert("L").tobytes())) > 20, "something is drawn"


def test_a_folder_without_reports_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip() == (
        f"error: {tmp_path}: no TABLES.md that lists reports; give a folder that output.archive named"
    )
