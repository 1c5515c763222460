"""Pictures of kept reports, drawn from their CSV files alone."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from PIL import Image

from plots.render import DATA
from tests.helpers.pictures import MEASURED, redraw

NAMES = ("arc_fig5", "fsd_fig3", "mars_fig3")
"""A sweep, a figure of traced positions, and one whose CSV file is older than an axis of the
report."""


def test_pictures_are_drawn_from_their_numbers(tmp_path: Path) -> None:
    for name in NAMES:
        for ending in ("csv", "environment.json"):
            shutil.copy(MEASURED / "embedded_cpu" / f"{name}.{ending}", tmp_path)
        (tmp_path / f"{name}.png").touch()
    with (tmp_path / "arc_fig5.csv").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert [path.stem for path in redraw(tmp_path)] == list(NAMES)
    for name in NAMES:
        digest = hashlib.sha256((tmp_path / f"{name}.csv").read_bytes()).hexdigest()
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.info[DATA] == digest
            assert len(set(image.convert("L").tobytes())) > 20, "something is drawn"
