"""A target's own answers as training data: resumable chunk by chunk, from prompts that no test set shares."""

from __future__ import annotations

import gzip
import json
import re

import pytest
import torch

from bench.config.compose import composer
from bench.config.paths import PROJECT
from bench.training.commands.answers import (
    chunks,
    complete_chunks,
    gsm8k_problems,
    instructions,
    is_tested,
    run,
    runs_of_tests,
)
from methods.engine.loading import load_model
from methods.training.packing import Records, load_records

SMALL = ["sources={user: 1, mini_gsm: 2, gsm8k: 1}", "chunk=3", "max_new_tokens=8", "tokens=80", "dtype=float32",
         "threads=1", "target_revision=null"]


def config_of(*overrides: str):
    with composer(name="answers") as hydra:
        return hydra.point(overrides).config


def test_an_interrupted_run_resumes_to_the_same_file(pair_folder, tmp_path):
    target = f"target={pair_folder / 'target'}"
    whole, torn = tmp_path / "whole.jsonl", tmp_path / "torn.jsonl"
    run(config_of(*SMALL, target, f"out={whole}"))
    lines = whole.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    assert sum(row["tokens"] for row in rows) >= 80 and {row["temperature"] for row in rows} == {0.0, 1.0}
    cut = next(i for i, row in enumerate(rows) if row["chunk"] > rows[0]["chunk"]) + 1  # into the second chunk
    torn.write_text("".join(lines[:cut]) + lines[cut][:20])
    assert complete_chunks(torn)[0] == {rows[0]["chunk"]}
    run(config_of(*SMALL, target, f"out={torn}"))
    assert torn.read_text() == whole.read_text()


def test_head_training_reads_the_answers(pair_folder, tmp_path):
    file = tmp_path / "answers.jsonl"
    run(config_of(*SMALL, f"target={pair_folder / 'target'}", f"out={file}", "tokens=500"))
    conversations = Records(load_records(str(file), "train"), str(file), 0).train(0)
    roles = [role for role, _ in next(conversations)]
    assert roles == ["user", "assistant"]
    packed = tmp_path / "answers.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert load_records(str(packed), "train")[:] == load_records(str(file), "train")[:]


def test_what_is_wrong_is_one_line(pair_folder):
    for override, message in (("sources={gsm9k: 1}", "sources.gsm9k: unknown key; did you mean sources.gsm8k"),
                              ("tokens=0", "tokens=0")):
        with pytest.raises(ValueError, match=message) as error:
            run(config_of(*SMALL, f"target={pair_folder / 'target'}", override))
        assert "\n" not in str(error.value)


def test_a_targets_instructions_depend_on_their_key_alone(pair_folder):
    torch.manual_seed(1)
    target = load_model(str(pair_folder / "target"))
    assert instructions(target, 4, "0/user/0") == instructions(target, 4, "0/user/0")


def test_no_training_prompt_shares_thirteen_words_with_a_test_prompt():
    with gzip.open(PROJECT / "tasks" / "data" / "gsm8k" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        tested = [json.loads(line)["question"] for line in file]
    assert all(map(is_tested, tested[:50])) and is_tested(f"Please solve: {tested[7].upper()}!")
    problems = gsm8k_problems(0)
    kept = [text for texts in chunks("gsm8k", 500, 0, None) for text in texts]
    assert len(problems) - 200 < len(kept) < len(problems)  # some of GSM8K's own training problems are near-copies
    mini = [text for name in ("mini_gsm", "mini_chat") for text in next(chunks(name, 200, 0, None))]
    runs = runs_of_tests()
    for text in (*kept, *mini):
        words = re.findall(r"\w+", text.casefold())
        assert not any(tuple(words[i:i + 13]) in runs for i in range(len(words)))
