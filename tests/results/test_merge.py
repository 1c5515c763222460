"""Two stores become one: equal samples are checked, what differs is left alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench import merge as command
from results.store.cells import Store
from results.store.merge import difference, merge
from results.store.sample import FailedSample, Sample
from tests.helpers.generated_store import Writer
from tests.helpers.summaries import failed_samples
from tests.helpers.synthetic_cells import sample

IDS = [f"p{i}" for i in range(6)]
BASE, CELL = "made-ar", "made-mars"


def config(key: str) -> dict[str, object]:
    return {"rule": {"name": "mars"}, "name": key, "baseline": BASE}


def store(
    root: Path,
    ids: Sequence[str] = tuple(IDS),
    changed: Mapping[str, Sample] | None = None,
    keys: Sequence[str] = (BASE, CELL),
    timed: int = 2,
    complete: bool = True,
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
        writer.write(key, config(key), alone, complete)
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
    assert (merged.added, merged.equal, merged.left) == ([CELL], [BASE], {})
    assert content(into.root / CELL) == content(other.root / CELL)
    assert before == {path: path.stat().st_mtime_ns for path in other.root.rglob("*")}, (
        "the other store stays"
    )
    merged = merge(into, other)
    assert sorted(merged.equal) == [BASE, CELL] and not merged.added


def test_prompts_that_are_missing_are_added(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", IDS[:4]), store(tmp_path / "b", IDS)
    merged = merge(into, other)
    assert merged.extended == {BASE: 2, CELL: 2} and not merged.left
    assert {one.id for one in into.cell(CELL).good_samples()} == set(IDS)
    assert (
        into.cell(CELL).timed() == Store(tmp_path / "a").cell(CELL).timed()
        and len(into.cell(CELL).timed()) == 2
    )
    environment = into.cell(CELL).environment()
    assert environment is not None and len(environment["earlier"]) == 1
    assert merge(into, other).extended == {}


def test_the_clock_of_another_machine_is_taken_only_where_there_is_none(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", timed=0, complete=False), store(tmp_path / "b", timed=3)
    merge(into, other)
    assert len(into.cell(CELL).timed()) == 3
    assert (
        into.cell(CELL).environment() is not None
        and len(into.cell(CELL).environment()["earlier"]) == 1
    )
    again = store(tmp_path / "c", timed=0)
    with again.cell(CELL).lock() as cell:
        for row in store(tmp_path / "d", timed=5).cell(CELL).timed():
            cell.append_timed(replace(row, started="2026-02-02T00:00:00+00:00"))
    merge(into, again)
    assert len(into.cell(CELL).timed()) == 3


def test_a_merge_that_was_killed_within_the_clock_is_completed(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", timed=2, complete=False), store(tmp_path / "b", timed=5)
    merge(into, other)
    assert into.cell(CELL).timed() == other.cell(CELL).timed() and len(into.cell(CELL).timed()) == 5


def test_failed_and_unscored_prompts_are_replaced_by_answers_alone(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", IDS[:3], complete=False), store(tmp_path / "b", IDS[:3])
    for one, failed in ((into, "p8"), (other, "p9")):
        with one.cell(CELL).lock() as cell:
            cell.append(FailedSample(failed, "no memory"))
    with into.cell(CELL).lock() as cell:
        cell.append(sample("p7", score=None, unscored=True))
    with other.cell(CELL).lock() as cell:
        cell.append(sample("p8"))
        cell.append(sample("p7"))
    assert merge(into, other).extended == {CELL: 3}
    assert {one.id: one.score for one in into.cell(CELL).good_samples()}["p7"] == 1.0
    assert [record.id for record in failed_samples(into.cell(CELL))] == ["p9"]


def test_a_cell_that_differs_is_named_and_left_alone(tmp_path: Path) -> None:
    into = store(tmp_path / "a")
    other = store(tmp_path / "b", changed={CELL: other_answer("p2", False)})
    before = content(into.root / CELL)
    merged = merge(into, other)
    assert merged.left == {CELL: "1 of 6 prompts differ, first p2 at token 4"}
    assert content(into.root / CELL) == before
    assert merge(into, other).left == merged.left, "as often as it is asked"


def test_a_cell_whose_baseline_differs_is_left_alone(tmp_path: Path) -> None:
    into = store(tmp_path / "a", keys=[BASE])
    other = store(tmp_path / "b", changed={BASE: other_answer("p0", True)})
    merged = merge(into, other)
    assert merged.left[CELL] == f"its baseline {BASE} is left alone" and BASE in merged.left
    assert [cell.key for cell in into.cells()] == [BASE]


def test_a_damaged_cell_is_left_alone(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", keys=[BASE]), store(tmp_path / "b")
    path = other.root / CELL / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"score": 1.0', b'"score": 0.0', 1))
    merged = merge(into, other)
    assert "samples.jsonl line 1 is not a sample" in merged.left[CELL]
    assert [cell.key for cell in into.cells()] == [BASE]


def test_a_cell_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a"), store(tmp_path / "b")
    with Store(into.root).cell(CELL).lock():
        merged = merge(into, other)
    assert "is being written by" in merged.left[CELL] and merged.equal == [BASE]


def test_traces_and_further_measurements_come_along(tmp_path: Path) -> None:
    into, other = store(tmp_path / "a", timed=0), store(tmp_path / "b")
    cell = other.cell(CELL)
    cell.write_record("profile", {"own": {"cycle": 1.0}})
    cell.write_record("coverage", {"mean": 7})
    (cell.path / "trace").mkdir()
    (cell.path / "trace" / "00000.parquet").write_bytes(b"rows")
    merge(into, other)
    own = into.cell(CELL)
    assert own.record("coverage") == {"mean": 7} and own.record("profile") == cell.record("profile")
    assert (own.path / "trace" / "00000.parquet").read_bytes() == b"rows"
    assert not list(into.root.rglob(".*.*.*.*")), "nothing temporary is left"


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
