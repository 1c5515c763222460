"""Two stores become one: equal samples are checked, what differs is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import merge as command
from results.store.cells import Store
from results.store.merge import difference, merge
from results.store.sample import FailedSample, Sample
from tests.helpers.generated_store import Writer
from tests.helpers.synthetic_cells import sample

IDS = [f"p{i}" for i in range(6)]
BASE, CELL = "made-ar", "made-mars"


def store(
    root: Path,
    ids: Sequence[str] = tuple(IDS),
    changed: Mapping[str, Sample] | None = None,
    keys: Sequence[str] = (BASE, CELL),
    timed: int = 2,
) -> Store:
    """A store of these cells over these prompts; `changed`: cell -> a sample in the place of its
    own."""
    for key in keys:
        writer, alone = Writer(root, ids, timed), key == BASE
        if changed and key in changed:
            other = changed[key]
            writer.samples[alone] = [
                other if one.id == other.id else one for one in writer.samples[alone]
            ]
        writer.write(key, {"rule": {"name": "mars"}, "name": key, "baseline": BASE}, alone)
    return Store(root)


def other_answer(id: str, alone: bool) -> Sample:
    [own] = [one for one in Writer(Path(), IDS).samples[alone] if one.id == id]
    return replace(own, output_ids=[*own.output_ids[:4], 99, *own.output_ids[5:]])


def content(cell: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cell.iterdir() if path.name[0] != "."}


def test_missing_cells_are_copied_and_equal_ones_left(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", keys=[BASE]), store(tmp_path / "b")
    before = {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}
    merged = merge(into, other)
    assert (merged.added, merged.equal, merged.refused) == ([CELL], [BASE], {})
    assert content(into.root / CELL) == content(other.root / CELL)
    assert before == {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}, (
        "the other store stays"
    )
    merged = merge(into, other)
    assert sorted(merged.equal) == [BASE, CELL] and not merged.added


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({"ids": IDS[:4]}, {"ids": IDS}, "2 answers and 0 timed prompts that this one lacks"),
        ({"timed": 0}, {"timed": 3}, "0 answers and 3 timed prompts that this one lacks"),
        ({"ids": IDS}, {"ids": IDS[:4]}, ""),
        ({"timed": 2}, {"timed": 5}, ""),
    ],
)
def test_a_cell_that_lacks_something_is_refused(
    ours: dict[str, Any], theirs: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Times of two machines are never mixed: those that are here stay."""
    into, other = store(tmp_path / "a", **ours), store(tmp_path / "b", **theirs)
    before = content(into.root / CELL)
    merged = merge(into, other)
    if said:
        assert said in merged.refused[BASE] and not merged.equal
        assert merged.refused[CELL] == f"its baseline {BASE} is refused"
    else:
        assert sorted(merged.equal) == [BASE, CELL] and not merged.refused
    assert content(into.root / CELL) == before and not merged.added


KILLED = """
import os, shutil, sys
from results.store.cells import Store
from results.store.merge import merge
copies, copyfile = iter(range(7)), shutil.copyfile
def until_killed(*given, **options):
    if next(copies) == 6:
        os._exit(9)
    copyfile(*given, **options)
shutil.copyfile = until_killed
merge(Store(sys.argv[1]), Store(sys.argv[2]))
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


def test_a_cell_that_differs_is_named_and_refused(tmp_path: Path) -> None:
    into = store(tmp_path / "a")
    other = store(tmp_path / "b", changed={CELL: other_answer("p2", False)})
    before = content(into.root / CELL)
    said = "1 of 6 prompts differ, first p2 at token 4"
    for _ in range(2):  # as often as it is asked
        assert merge(into, other).refused == {CELL: said}
    assert content(into.root / CELL) == before
    other = store(tmp_path / "c", changed={BASE: other_answer("p2", True)})
    assert merge(into, other).refused == {BASE: said, CELL: f"its baseline {BASE} is refused"}


def test_a_damaged_cell_is_refused(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", keys=[BASE]), store(tmp_path / "b")
    path = other.root / CELL / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"score": 1.0', b'"score": 0.0', 1))
    merged = merge(into, other)
    assert "samples.jsonl line 1 is not a sample" in merged.refused[CELL]
    assert [cell.key for cell in into.cells()] == [BASE]


def test_traces_and_further_measurements_come_along(tmp_path: Path) -> None:
    into, other = Store(tmp_path / "a"), store(tmp_path / "b")
    cell = other.cell(CELL)
    cell.write_record("profile", {"own": {"cycle": 1.0}})
    (cell.path / "trace").mkdir()
    (cell.path / "trace" / "00000.parquet").write_bytes(b"rows")
    merge(into, other)
    own = into.cell(CELL)
    assert own.record("profile") == cell.record("profile")
    assert (own.path / "trace" / "00000.parquet").read_bytes() == b"rows"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, ""),
        ({"nll": 10.0001}, ""),
        ({"nll": 10.1}, "in nll"),
        ({"nll": None}, "in nll"),
        ({"score": 0.0}, "in score"),
        ({"texts": ["another"]}, "in texts"),
        ({"details": {"bleu": 1.0}}, "in details"),
        ({"nodes": [4]}, "in nodes"),
        ({"output_ids": [1, 5, 3]}, "at token 1"),
        ({"output_ids": [1]}, "at token 1"),
        ({"output_ids": []}, "at token 0"),
        ({"prompt_sha256": "f" * 64}, "is another one than before"),
    ],
)
def test_where_samples_differ(changes: dict[str, object], where: str) -> None:
    own = sample("p0", [1, 2], nll=10.0, prompt_sha256="0" * 64)
    found = (
        difference([own], [replace(own, **changes)]),
        difference([replace(own, **changes)], [own]),
    )
    assert all(where in one and bool(one) == bool(where) for one in found)


def test_differences_are_of_the_prompts_that_both_answered() -> None:
    own = [sample("a", [1]), sample("b", [1, 2]), sample("c", [3]), FailedSample("d", "why")]
    other = [sample("b", [1, 4]), sample("c", [3], score=0.0), sample("d", [1]), sample("e")]
    assert difference(own, other) == "2 of 2 prompts differ, first b at token 1"
    assert difference(own[2:], other) == "1 of 1 prompts differ, first c in score"


def test_what_holds_no_cell_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "store.tar.xz").write_bytes(b"x")
    for name, words in (
        ("empty", "holds no cell"),
        ("store.tar.xz", "of an archive what `tar -xf` makes of it"),
    ):
        assert command.main([f"store.dir={tmp_path / 'into'}", f"from={tmp_path / name}"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert words in line
