"""Two stores become one: equal samples are checked, what differs is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.merge import main
from results.store.cells import Store
from results.store.merge import difference, merge
from results.store.sample import FailedSample, timing_order
from tests.helpers.synthetic_cells import compared, sample
from tests.helpers.tables import beside

IDS = [f"p{i}" for i in range(6)]
BASE, CELL = "made-ar", "made-mars"


def store(
    root: Path,
    ids: Sequence[str] = IDS,
    timed: int = 2,
    keys: Sequence[str] = (BASE, CELL),
    changed: str = "",
) -> Store:
    """A store of these cells over these prompts; one cell may have other answers to p2 and p3."""
    for key in keys:
        with Store(root).cell(key).lock() as cell:
            cell.write_config({"rule": {"name": "mars"}, "name": key, "baseline": BASE})
            cell.write_environment({"run": {"timed": timed}})
            for place, name in enumerate(ids):
                plain, own = (
                    sample(name, range(25), committed=[step] * (24 // step)) for step in (1, 3)
                )
                answer, beside = (plain, None) if key == BASE else (own, plain)
                if key == changed and place in (2, 3):
                    answer.output_ids[4] = 99
                cell.append(answer)
                if name in timing_order(ids)[:timed]:
                    cell.append_timed(compared(answer, beside).timed)
    return Store(root)


def content(folder: Path) -> dict[Path, bytes]:
    """Every file but the hidden ones."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_missing_cells_are_copied_and_equal_ones_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their traces and further measurements."""
    into, other = store(tmp_path / "a", keys=[BASE]), store(tmp_path / "b")
    cell = other.cell(CELL)
    cell.write_record("profile", {"own": {"cycle": 1.0}})
    (cell.path / "trace").mkdir()
    (cell.path / "trace" / "00000.parquet").write_bytes(b"rows")
    before = {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}
    merged = merge(into, other)
    assert (merged.added, merged.equal, merged.refused) == ([CELL], [BASE], {})
    assert content(into.root / CELL) == content(other.root / CELL)
    assert len(content(into.root / CELL)) >= 6
    assert before == {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}, (
        "the other store stays"
    )
    assert main([f"store.dir={into.root}", f"from={other.root}"]) == 0
    assert "0 cells added, 2 equal, 0 refused" in capsys.readouterr().out


BEHIND = f"its baseline {BASE} is refused"
DIFFERS = "2 of 6 prompts differ, first p2 at token 4"


@pytest.mark.parametrize(
    ("ours", "theirs", "refused"),
    [
        (
            {"ids": IDS[:4]},
            {},
            {BASE: "2 answers and 0 timed prompts that this one lacks", CELL: BEHIND},
        ),
        (
            {"timed": 0},
            {"timed": 3},
            {BASE: "0 answers and 3 timed prompts that this one lacks", CELL: BEHIND},
        ),
        ({}, {"ids": IDS[:4]}, {}),
        ({}, {"timed": 5}, {}),
        ({}, {"changed": CELL}, {CELL: DIFFERS}),
        ({}, {"changed": BASE}, {BASE: DIFFERS, CELL: BEHIND}),
    ],
)
def test_a_cell_that_differs_or_lacks_something_is_refused(
    ours: dict[str, Any], theirs: dict[str, Any], refused: dict[str, str], tmp_path: Path
) -> None:
    """As often as it is asked. Times of two machines are never mixed: those that are here stay."""
    into, other = store(tmp_path / "a", **ours), store(tmp_path / "b", **theirs)
    before = content(into.root)
    for _ in range(2):
        merged = merge(into, other)
        assert merged.refused.keys() == refused.keys() and not merged.added
        assert all(words in merged.refused[key] for key, words in refused.items())
        assert {*merged.equal} == {BASE, CELL} - refused.keys()
    assert content(into.root) == before


KILLED = """
import os, shutil, sys
from pathlib import Path
from results.store.cells import Store
from results.store.merge import merge
copies, copyfile = iter(range(7)), shutil.copyfile
def until_killed(*given, **options):
    if next(copies) == 6:
        os._exit(9)
    copyfile(*given, **options)
shutil.copyfile = until_killed
merge(Store(Path(sys.argv[1])), Store(Path(sys.argv[2])))
"""


def test_a_merge_that_was_killed_is_completed(tmp_path: Path) -> None:
    """It had copied the baseline whole, and a part of the cell."""
    into, other = Store(tmp_path / "a"), store(tmp_path / "b")
    killed = subprocess.run([sys.executable, "-c", KILLED, into.root, other.root], check=False)
    assert killed.returncode == 9 and [cell.key for cell in into.cells()] == [BASE]
    assert len(list(into.root.iterdir())) == 2, "what was half copied is hidden"
    merged = merge(into, other)
    assert (merged.added, merged.equal, merged.refused) == ([CELL], [BASE], {})
    assert content(into.root / CELL) == content(other.root / CELL)
    assert len(list(into.root.iterdir())) == 2, "and it is gone"


def test_failed_prompts_differ_from_nothing(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a"), store(tmp_path / "b")
    with other.cell(CELL).lock() as cell:
        cell.append(FailedSample("p9", "no memory"))
    assert merge(into, other).equal == [BASE, CELL]
    with into.cell(CELL).lock() as cell:
        cell.append(FailedSample("p8", "no memory"))
    with other.cell(CELL).lock() as cell:
        cell.append(sample("p8"))
    assert "1 answers" in merge(into, other).refused[CELL]


def test_a_damaged_cell_is_refused(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", keys=[BASE]), store(tmp_path / "b")
    path = other.root / CELL / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"score": 1.0', b'"score": 0.0', 1))
    merged = merge(into, other)
    assert "samples.jsonl line 1 is not a sample" in merged.refused[CELL]
    assert [cell.key for cell in into.cells()] == [BASE]


DIFFERENCES = beside(__file__, "differences.yaml")


@pytest.mark.parametrize(("where", "changes"), DIFFERENCES)
def test_where_samples_differ(where: str, changes: dict[str, Any]) -> None:
    own = sample("p0", [1, 2], nll=10.0, prompt_sha256="0" * 64)
    other = replace(own, **changes)
    for found in (difference([own], [other]), difference([other], [own])):
        assert where in found and bool(found) == bool(where)
