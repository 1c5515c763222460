"""The campaign: its parts (marker `attack`), and that its checks see what they are for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.campaign import BY_NAME
from tests.attack.stores import difference, doubled, leftovers, lines, lost
from tests.attack.warm import PROJECT


@pytest.mark.attack
@pytest.mark.parametrize("part", BY_NAME)
def test_a_whole_part_survives(part: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.attack", part], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_checks_of_a_store(tmp_path: Path) -> None:
    cell = tmp_path / "cell"
    cell.mkdir()
    samples = cell / "samples.jsonl"
    samples.write_text('{"id": "a", "error": "x"}\n{"id": "a", "output_ids": [1]}\n{"id": "b"')
    assert doubled(tmp_path) == "" and leftovers(tmp_path) == ""
    before = lines(tmp_path)
    samples.write_text(2 * (json.dumps({"id": "a", "output_ids": [1]}) + "\n"))
    assert "cell" in lost(before, lines(tmp_path)) and "a doubled" in doubled(tmp_path)
    (cell / ".summary.json.7").touch()
    assert ".summary.json.7" in leftovers(tmp_path)
    right = {"c": {"a": (1,), "b": (2,)}}
    assert difference(right, right) == difference({"c": {"a": (1,)}}, right, complete=False) == ""
    assert "1 of 2 samples are missing" in difference({"c": {"a": (1,)}}, right)
    assert "other tokens" in difference({"c": {"a": (3,), "b": (2,)}}, right, complete=False)
