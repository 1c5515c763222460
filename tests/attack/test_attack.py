"""The campaign: its parts (marker `attack`), and that its checks see what they are for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack import campaign as whole
from tests.attack.campaign import BY_NAME, PARTS
from tests.attack.commands import COMMON, Wrong, rows, some
from tests.attack.corruption import DAMAGES
from tests.attack.files import MAKERS, NAMED, TEXTS, Files
from tests.attack.part import Field, Part, Tally, Trial, run
from tests.attack.refusals import fault, words
from tests.attack.stores import difference, doubled, leftovers, lines, lost
from tests.attack.warm import PROJECT, Ended


@pytest.mark.attack
@pytest.mark.parametrize("part", BY_NAME)
def test_a_whole_part_survives(part: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.attack", part], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_budgets_are_45_minutes() -> None:
    assert sum(part.budget for part in PARTS) == 45 * 60


def test_the_table_of_commands() -> None:
    every = list(rows())
    assert len({row.words for row in every}) == len(every) >= 250
    assert all(row.says for row in every)
    assert len(some(60)) == len({row.words for row in some(60)}) == 60


def test_every_file_is_named_by_a_command(tmp_path: Path) -> None:
    named = {name for row in rows() for name in NAMED.findall(row.words)}
    assert named == {*TEXTS, *MAKERS}
    assert Files(tmp_path)["torn.jsonl"].read_text() == TEXTS["torn.jsonl"]


def test_common_words_are_added_where_they_are_not_given(tmp_path: Path) -> None:
    wrong = Wrong("n=0 'task.prompt=a b'", (), 2, "composed", 10)
    made = words(wrong, Files(tmp_path / "files"), tmp_path)
    assert made == ["bench", *COMMON[1:], f"output.dir={tmp_path}", "n=0", "task.prompt=a b"]


@pytest.mark.parametrize(("status", "err", "seen"), [
    (2, "error: n=0: must be ≥ 1\n", ""),
    (None, "", "no end after 10 s"),
    (1, "Traceback (most recent call last)\n  x\nKeyError: 3\n", "traceback, status 1: KeyError: 3"),
    (1, "error: n=0: must be ≥ 1\n", "status 1, not 2"),
    (2, "usage: x\nerror: n=0: must be ≥ 1\n", "2 lines"),
    (2, "", "0 lines"),
    (2, "wrong: n=0: must be ≥ 1\n", "does not begin"),
    (2, "error: n=0: \x1b[2J must be ≥ 1\n", "not printable"),
    (2, "error: n=0: must be ≥ 1" + " or so" * 1000 + "\n", "characters"),
    (2, "error: n=0: is wrong\n", "does not say ≥ 1"),
])
def test_the_check_of_an_answer(tmp_path: Path, status: int | None, err: str, seen: str) -> None:
    wrong = Wrong("n=0", ("n=0", "≥ 1"), 2, "composed", 10)
    found = fault(wrong, Ended(status, "", err, 1.0), Files(tmp_path / "files"), tmp_path / "output")
    assert seen in found and bool(seen) == bool(found)


def test_the_check_of_what_a_refusal_leaves(tmp_path: Path) -> None:
    files, ended = Files(tmp_path / "files"), Ended(2, "", "error: n=0\n", 1.0)
    wrong = Wrong("n=0", ("n=0",), 2, "composed", 10)
    cell = tmp_path / "store" / "cell"
    cell.mkdir(parents=True)
    assert "folder" in fault(wrong, ended, files, tmp_path)
    (cell / "samples.jsonl").write_text('{"output_ids": [1]}\n')
    assert "decoded" in fault(wrong, ended, files, tmp_path)
    files.marker.touch()
    assert "ran code" in fault(wrong, ended, files, tmp_path)


def test_the_checks_of_a_store(tmp_path: Path) -> None:
    cell = tmp_path / "cell"
    cell.mkdir()
    samples = cell / "samples.jsonl"
    samples.write_text('{"id": "a", "error": "x"}\n{"id": "a", "output_ids": [1]}\n{"id": "b"')
    assert doubled(tmp_path) == "" and leftovers(tmp_path) == ""
    before = lines(tmp_path)
    samples.write_text(json.dumps({"id": "a", "output_ids": [1]}) + "\n")
    assert lost(before, before) == "" and "cell" in lost(before, lines(tmp_path))
    samples.write_text(2 * (json.dumps({"id": "a", "output_ids": [1]}) + "\n"))
    assert "a doubled" in doubled(tmp_path)
    samples.unlink()
    (cell / ".summary.json.7").touch()
    assert ".summary.json.7" in leftovers(tmp_path)


@pytest.mark.parametrize(("got", "complete", "seen"), [
    ({"c": {"a": (1,), "b": (2,)}}, True, ""),
    ({"c": {"a": (1,)}}, True, "1 of 2 samples are missing"),
    ({"c": {"a": (1,)}}, False, ""),
    ({}, True, "'c'"),
    ({"c": {"a": (3,), "b": (2,)}}, False, "other tokens"),
    ({"c": {"z": (1,)}}, False, "not asked for"),
])
def test_the_difference_of_two_stores(got, complete: bool, seen: str) -> None:
    found = difference(got, {"c": {"a": (1,), "b": (2,)}}, complete=complete)
    assert seen in found and bool(seen) == bool(found)


def test_every_damage_changes_the_file(tmp_path: Path) -> None:
    import random

    for name, damage in DAMAGES.items():
        path, other = tmp_path / f"{name}.json", tmp_path / f"{name} other.json"
        path.write_text("".join(f'{{"id": {n}}}\n' for n in range(20)))
        other.write_text('{"other": 1}\n')
        before = path.read_bytes()
        damage(path, other, random.Random(3))
        assert not path.is_file() or path.read_bytes() != before, name


def test_a_part_stops_at_its_budget_and_counts(tmp_path: Path) -> None:
    def endless(field: Field):
        yield Trial("first", "broken")
        while True:
            yield Trial("more")

    said: list[str] = []
    tally = run(Part("x", "x", 1, endless), 0, 0.05, tmp_path / "x", said.append)
    assert tally.left and tally.tried == tally.survived + 1 > 2 and said == ["defect: first: broken"]
    def breaking(field: Field):
        yield Trial("a")
        raise KeyError("b")

    broken = run(Part("y", "y", 1, breaking), 0, 9, tmp_path / "y", said.append)
    assert broken.tried == 2 and broken.survived == 1, "an error of the part is a defect"
    absent = run(Part("z", "z", 1, endless, lambda: "no root"), 0, 9, tmp_path / "z", said.append)
    assert absent.absent == "no root" and absent.tried == 0


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "attack.md"
    before, begin, _ = whole.PAGE.read_text().partition(whole.BEGIN)
    page.write_text(before + begin + "| old |\n" + whole.END + "after\n")
    monkeypatch.setattr(whole, "PAGE", page)
    kills, disk = Tally(BY_NAME["kills"], 7, 780, 200, 61.5), Tally(BY_NAME["disk"], 7, 180, absent="needs root")
    kills.defects.append(Trial("n=1", "a | <b>"))
    for _ in range(2):
        whole.write_page([kills, disk])
    text = page.read_text()
    assert text.startswith(before) and text.endswith("after\n") and "| old |" not in text
    assert text.count("200 attacks, 1 defects. Run on ") == 1
    lines = [[word.strip() for word in line.split("|")] for line in text.splitlines()]
    rows = {words[1]: words[2:-1] for words in lines if len(words) == 8}
    assert rows["kill -9 of a run"] == ["200", "199", "62", "780", "7"]
    assert rows["full disk"] == ["not here", "", "0", "180", "7"]
    assert "- full disk: not run here: needs root." in text and "- kill -9 of a run: `n=1`: a \\| &lt;b>" in text
