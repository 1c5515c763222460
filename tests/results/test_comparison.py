"""bench.compare: changed tokens, and τ and speed beyond their intervals."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench import compare, merge
from results.metrics.comparison import Side, compare_stores
from results.store.cells import Store
from results.store.sample import Sample
from results.store.timed import Timed
from tests.helpers.generated_store import Writer

IDS = [f"p{i:02d}" for i in range(16)]
BASE, CELL = "made-ar", "made-mars"


def write(root: Path, change: Callable[[Sample], Sample] = lambda one: one,
          clock: Callable[[Timed], Timed] = lambda one: one, name: str = CELL, **config: object) -> Path:
    """A store of a cell and its baseline; `change`, `clock`: of the cell's samples and timed prompts."""
    writer = Writer(root, IDS, timed=len(IDS))
    writer.samples[False] = [change(one) for one in writer.samples[False]]
    writer.timed[False] = [clock(one) for one in writer.timed[False]]
    common = {"pair": {"name": "tiny", "target": "/here/target"}, "engine": {"device": "cpu", "dtype": "float32"},
              "task": {"name": "mini"}, "fingerprints": {"target": "aa"}, **config}
    writer.write(BASE, {**common, "rule": {"name": "lossless"}, "name": BASE, "baseline": BASE}, True)
    writer.write(name, {**common, "rule": {"name": "mars"}, "name": name, "baseline": BASE})
    return root


def slower(factor: float) -> Callable[[Timed], Timed]:
    return lambda row: replace(row, own=replace(row.own, decode_s=factor * row.own.decode_s))


def other_token(one: Sample) -> Sample:
    return replace(one, output_ids=[*one.output_ids[:-1], 99]) if one.id == "p03" else one


def shorter_cycles(one: Sample) -> Sample:
    """Two tokens a cycle in place of three, for the same tokens."""
    return replace(one, committed=[2] * 12, accepted=[1] * 12)


def test_equal_stores_have_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([str(write(tmp_path / "a")), str(write(tmp_path / "b"))]) == 0
    printed = capsys.readouterr()
    assert printed.out == "2 cells with 32 common prompts: 0 changed; 0 only in A, 0 only in B\n" and not printed.err


@pytest.mark.parametrize(("options", "complaint"), [
    ({"change": other_token}, f"worse: {CELL}: 1 of 16 prompts differ in their tokens, first p03 at token 24"),
    ({"change": lambda one: replace(one, score=0.0)}, f"worse: {CELL}: 16 of 16 prompts differ, first p00 in score"),
    ({"change": shorter_cycles}, f"worse: {CELL}: tau is lower: × 0.667 [0.667, 0.667]"),
    ({"clock": slower(2)}, f"worse: {CELL}: speedup is lower: × 0.500 [0.500, 0.500]"),
])
def test_a_change_for_the_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict,
                                complaint: str) -> None:
    assert compare.main([str(write(tmp_path / "a")), str(write(tmp_path / "b", **options))]) == 1
    printed = capsys.readouterr()
    assert complaint in printed.err.splitlines() and CELL in printed.out


def test_what_is_better_or_within_its_interval_is_not_worse(tmp_path: Path) -> None:
    before = write(tmp_path / "a")
    assert compare.main([str(before), str(write(tmp_path / "b", clock=slower(0.5)))]) == 0
    noise = {name: 1.05 if place % 2 else 0.95 for place, name in enumerate(IDS)}
    after = write(tmp_path / "c", clock=lambda row: slower(noise[row.id])(row))
    [ratio] = [change.ratios["speedup"] for change in compare_stores(Store(before), Store(after)).changes
               if change.after.key == CELL]
    assert ratio[1] is not None and ratio[1][0] < 1 < ratio[1][1]
    assert compare.main([str(before), str(after)]) == 0


def test_versions_are_matched_by_settings(tmp_path: Path) -> None:
    before = write(tmp_path / "a", identity=3)
    after = write(tmp_path / "b", name="made-mars-of-later", identity=4,
                  pair={"name": "tiny", "target": "/elsewhere/target"})
    pairs = {(change.before.key, change.after.key) for change in compare_stores(Store(before), Store(after)).changes}
    assert pairs == {(BASE, BASE), (CELL, "made-mars-of-later")}


def test_other_models_may_give_other_tokens(tmp_path: Path) -> None:
    after = write(tmp_path / "b", change=other_token, name="other", fingerprints={"target": "bb"})
    compared = compare_stores(Store(write(tmp_path / "a")), Store(after))
    assert all(change.samples is None and not change.regressions for change in compared.changes)
    assert len(compared.changes) == 2


def test_what_cannot_be_compared_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "a"), write(tmp_path / "b", name="x", seed=1)
    (before / BASE / "samples.jsonl").write_text("no sample\n")
    assert compare.main([str(before), str(after)]) == 1
    assert "0 cells with 0 common prompts: 0 changed; 1 only in A, 2 only in B" in capsys.readouterr().out
    (before / BASE / "cell.yaml").unlink()
    assert compare.main([str(before), str(after)]) == 2, "nothing is in both"
    assert "no cell has the same name or settings in both" in capsys.readouterr().err
    after = write(tmp_path / "c")
    (after / BASE / "samples.jsonl").write_text("no sample\n")
    assert compare.main([str(write(tmp_path / "d")), str(after)]) == 1
    assert "not compared: " in capsys.readouterr().err
    assert compare.main([str(tmp_path / "none"), str(after)]) == 2


def test_paths_are_no_part_of_the_settings() -> None:
    one = Side("a", {"pair": {"name": "p", "target": "/a/t"}, "rule": {"file": "/x/arc.json", "theta": 1}, "n": 3})
    two = Side("b", {"pair": {"name": "p", "target": "/b/t"}, "rule": {"file": "/y/arc.json", "theta": 1}, "n": 5})
    assert one.settings == two.settings != Side("c", {**two.config, "seed": 1}).settings


def test_merging_keeps_what_differs_where_it_can_be_compared(tmp_path: Path,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    into, other = write(tmp_path / "a"), write(tmp_path / "b", change=other_token)
    assert merge.main([f"store.dir={into}", f"from={other}"]) == 1
    printed = capsys.readouterr()
    assert f"kept apart: {CELL}: 1 of 16 prompts differ" in printed.err
    assert "0 cells added, 0 extended by 0 prompts, 1 equal, 1 kept apart, 0 left alone" in printed.out
    assert compare.main([str(into), str(into / "apart" / "b")]) == 1
    assert "first p03 at token 24" in capsys.readouterr().err


def test_another_prompt_of_one_id_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (write(tmp_path / name, lambda one, name=name: replace(one, prompt_sha256=64 * (
        name if one.id == "p03" else "0"))) for name in "ab")
    held = {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
    assert (compare.main([str(before), str(after)]), merge.main([f"store.dir={before}", f"from={after}"])) == (1, 1)
    reason = (f"{CELL}: 1 of 16 prompts differ, first prompt p03 is another one than before: SHA-256 {'a' * 16}… then, "
              f"{'b' * 16}… now")
    assert capsys.readouterr().err.splitlines() == [f"worse: {reason}", f"kept apart: {reason}"]
    assert held == {file: file.read_bytes() for file in held}, "nothing is overwritten"


def test_a_store_is_merged_from_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, into, file = write(tmp_path / "b"), tmp_path / "a", tmp_path / "kept.tar.xz"
    with tarfile.open(file, "w:xz") as archive:
        archive.add(other, "store")
        archive.add(other / BASE / "cell.yaml", "../outside.yaml")
    assert merge.main([f"store.dir={into}", f"from={file}"]) == 0
    assert "2 cells added" in capsys.readouterr().out
    for cell in Store(other).cells():
        assert Store(into).cell(cell.key).samples() == cell.samples()
    assert not (tmp_path / "outside.yaml").exists(), "nothing is unpacked outside of its folder"
    file.write_bytes(file.read_bytes()[:-400])
    assert merge.main([f"store.dir={into}", f"from={file}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "not a whole tar archive" in line
    assert list(Store(into).cells()), "what was merged stays"


@pytest.mark.parametrize(("words", "complaint"), [
    (["store.dir=OUT"], "from"), (["store.dir=OUT", "from=OUT"], "no such folder"),
    (["store.dir=A", "from=A"], "is store.dir itself"), (["store.dir=A", "form=A"], "form")])
def test_a_wrong_merge_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str],
                                   complaint: str) -> None:
    (tmp_path / "a").mkdir()
    places = {"A": str(tmp_path / "a"), "OUT": str(tmp_path / "out")}
    given = [f"{key}={places.get(value, value)}" for key, value in (word.split("=") for word in words)]
    assert merge.main(given) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and complaint in line
