"""A sample knows the prompt that it answers: another prompt of the same id is refused, and nothing is overwritten."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.run.answer import prompt_sha256
from methods.engine.loading import load_model
from results.store.cells import CellFolder
from tasks.base import Prompt

TEXTS = ("The cat sat on the mat.", "Two and two make four.", "A red house stands there.", "Rain falls in autumn.")


def write(file: Path, texts: tuple[str, ...]) -> None:
    file.write_text("".join(json.dumps({"id": f"p{i}", "prompt": text}) + "\n" for i, text in enumerate(texts)))


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of prompts whose identity stays when its content changes, as a hub dataset's does with revision: null."""
    monkeypatch.setattr("bench.config.identity.contents", str)
    file = tmp_path / "prompts.jsonl"
    write(file, TEXTS)
    return file


def cells(store: Path) -> list[Path]:
    return [path.parent for path in store.glob("*/samples.jsonl")]


def without_hashes(folder: Path) -> None:
    """Rewrite a cell's samples as schema 1 has them."""
    lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for line in lines:
        for name in ("prompt_sha256", "nodes", "levels", "digest"):
            line.pop(name, None)
        line |= {"text": "\n\n".join(line["texts"]), "seed": 0}
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_hash_is_of_what_the_task_gives(pair_folder: Path) -> None:
    target = load_model(str(pair_folder / "target"))
    talk = Prompt("a", turns=("Hello", "And then?"), system="Be brief.")
    hashes = {prompt_sha256(target, prompt) for prompt in (
        talk, Prompt("a", turns=("Hello", "And now?"), system="Be brief."), Prompt("a", turns=("Hello", "And then?")),
        Prompt("a", turns=("Hello", "And then?"), system="Be brief.", history=("Hi",)),
        Prompt("a", turns=("Hello",), system="Be brief."),
        Prompt("a", turns=("Hello", "And then?"), system="Be brief.", prefix=(("user", "x"), ("assistant", "y"))))}
    assert len(hashes) == 6
    assert prompt_sha256(target, talk) == prompt_sha256(target, Prompt("b", turns=talk.turns, system=talk.system))
    ids = tuple(target.encode_text("Hello there"))
    assert prompt_sha256(target, Prompt("a", text="Hello there")) == prompt_sha256(target, Prompt("a", input_ids=ids))


def test_another_prompt_under_the_same_identity_is_refused(command, prompts: Path) -> None:
    settings = ("method=sps", "task=prompts", f"task.path={prompts}", "timed=0")
    first = command(*settings, "n=2")
    assert first.status == 0
    before = {path: path.read_bytes() for path in first.store.root.glob("*/samples.jsonl")}
    assert len(before) == 2
    write(prompts, (TEXTS[0], "Two and two make five.", *TEXTS[2:]))
    second = command(*settings, "n=4")
    assert second.status == 1
    names = {path.parent.name for path in before if "-ar-" not in path.parent.name}
    [line] = [line for line in second.err.splitlines() if any(name in line for name in names)]
    assert re.match(r"failed: \S+: prompt p1 is another one than before: SHA-256 \w{16}… then, \w{16}… now; ", line)
    assert before == {path: path.read_bytes() for path in before}, "nothing was decoded, nothing overwritten"


def test_a_baseline_of_other_prompts_is_refused_before_anything_is_decoded(command, prompts: Path) -> None:
    assert command("method=ar", "task=prompts", f"task.path={prompts}", "timed=0", "n=2").status == 0
    write(prompts, ("A dog sat on the mat.", *TEXTS[1:]))
    result = command("method=sps", "task=prompts", f"task.path={prompts}", "timed=0", "n=2")
    assert result.status == 1 and "prompt p0 is another one than before" in result.err
    assert len(cells(result.store.root)) == 1


def test_the_timed_pass_refuses_another_prompt(command, prompts: Path) -> None:
    settings = ("method=sps", "task=prompts", f"task.path={prompts}", "n=2")
    assert command(*settings, "timed=0").status == 0
    write(prompts, ("A dog sat on the mat.", *TEXTS[1:]))
    result = command(*settings, "timed=2")
    assert result.status == 1 and "prompt p0 is another one than before" in result.err
    assert not list(result.store.root.glob("*/timed.jsonl"))


def test_samples_without_a_hash_are_taken_as_they_are_and_counted(command, prompts: Path) -> None:
    settings = ("method=sps", "task=prompts", f"task.path={prompts}", "timed=0")
    result = command(*settings, "n=2")
    for folder in cells(result.store.root):
        without_hashes(folder)
    resumed = command(*settings, "n=4")
    assert resumed.status == 0
    assert "4 earlier samples without a hash of the prompt: taken as they are" in resumed.out
    for cell in map(result.store.cell, [path.name for path in cells(result.store.root)]):
        assert isinstance(cell, CellFolder)
        assert [sample.prompt_sha256 is None for sample in cell.good_samples()] == [True, True, False, False]
