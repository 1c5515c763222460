"""A sample knows the prompt that it answers: another prompt of the same id is refused, and nothing is overwritten."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.run.answer import prompt_sha256
from methods.engine.loading import load_model
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
