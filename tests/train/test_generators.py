"""The generators of the embedded benchmarks: frozen examples and rows, disjoint splits,
reproducible streams."""

import json
import random
from collections import Counter
from hashlib import blake2b
from itertools import islice

import pytest

from models.train.texts import (
    BENCHMARKS,
    EXERCISES,
    corpus,
    examples,
    normalise,
    prompts,
    split_of,
    worded,
)
from models.train.texts.phrase import either, plain, wording
from tasks.base import TaskError
from tasks.mini import MiniTask

ALL = pytest.mark.parametrize("name", BENCHMARKS)
DRAWN = {
    "mini_gsm": "5e8e7e326906", "mini_code": "b49c49290103", "mini_chat": "f49c110477ca",
    "mini_instruct": "df06a90dad09", "mini_sum": "aab172a072d2", "mini_choice": "319febdca179",
    "recall": "f9cd1725fd9b",
}  # fmt: skip
"""Digests of 300 examples of each generator: the shipped models learned these."""


def test_a_phrase_by_hand():
    phrase = "[So|Now|] he [has [two|2]|owns 2] hats[0]"
    assert plain(phrase) == "So he has two hats[0]"
    rng = random.Random(0)
    assert {wording(phrase, rng) for _ in range(200)} == {
        f"{start} he {owns} hats[0]"
        for start in ("So", "Now", "")
        for owns in ("has two", "has 2", "owns 2")
    }
    assert plain(either("b", ("a", "b", "c"))) == "b"
    assert either("b", ("a", "b", "c")) == "[b|a|c]" and either("a", ("a",)) == "a"
    for wrong in ("[a|b", "a|b]", "[[a|b]"):
        with pytest.raises(ValueError, match="bracket"):
            plain(wrong)


def test_all_options_are_drawn_alike():
    rng = random.Random(0)
    counts = Counter(wording("[a|b|c [d|e]]", rng) for _ in range(6000))
    assert counts == pytest.approx({"a": 2000, "b": 2000, "c d": 1000, "c e": 1000}, abs=120)


@pytest.mark.parametrize("name", DRAWN)
def test_wording_changed_no_prompt_reference_or_plain_answer(name):
    rng, digest = random.Random(f"x{name}"), blake2b()
    for _ in range(300):
        example = {**BENCHMARKS, **EXERCISES}[name].draw(rng)
        told = [example.turns, example.answers, example.reference]
        digest.update(json.dumps(told, sort_keys=True).encode())
        assert tuple(map(plain, example.phrases)) == example.answers
    assert digest.hexdigest()[:12] == DRAWN[name]


@ALL
def test_an_example_has_one_wording_a_seed(name):
    example = BENCHMARKS[name].draw(random.Random(5))
    assert worded(example, 0) == worded(example, 0)
    assert len({worded(example, seed).answers for seed in range(20)}) > 3
    assert {worded(example, seed).turns for seed in range(20)} == {example.turns}


def test_case_space_and_punctuation_do_not_change_the_split():
    assert normalise(["Tom has 5 hats.", "Why?"]) == normalise(["tom  has 5 hats", "why"])
    assert normalise(["Tom has", "5 hats"]) != normalise(["Tom has 5 hats"])
    assert normalise(["Tom has 5 hats"]) != normalise(["Tom has 6 hats"])


@ALL
def test_the_frozen_rows_are_those_that_are_drawn(name):
    one, other = (next(examples(name, "train", seed)).turns for seed in (3, 4))
    assert one != other
    for split in ("test", "calibration", "train"):
        drawn = [
            (prompt.id, prompt.turns, json.loads(json.dumps(prompt.reference)))
            for prompt in islice(prompts(name, split), 40)
        ]
        held = MiniTask(name).prompts_of(split, 1024)
        assert [(prompt.id, prompt.turns, prompt.reference) for prompt in held[:40]] == drawn
        assert len(held) == 1024


def test_the_corpus_mixes_by_weight_from_the_training_split():
    weights = {"mini_gsm": 3.0, "mini_choice": 1.0}
    mixed, again, other = (list(islice(corpus(seed, weights), 1000)) for seed in (2, 2, 3))
    assert mixed == again != other
    assert [name for name, _ in mixed].count("mini_gsm") == pytest.approx(750, abs=60)
    assert all(
        split_of(example.turns) == "train" and example.id.startswith(name)
        for name, example in mixed
    )


def test_unknown_names_and_impossible_numbers_are_refused():
    with pytest.raises(TaskError, match="choose one of"):
        next(examples("gsm", "test"))
    with pytest.raises(TaskError, match="at least 1"):
        MiniTask("mini_gsm").prompts(0)
    with pytest.raises(TaskError, match="n=1025: this benchmark has 1,024 test prompts"):
        MiniTask("mini_gsm").prompts(1025)
    for weights in ({}, {"mini_gsm": 0.0}, {"mini_gsm": -1.0, "mini_choice": 2.0}):
        with pytest.raises(TaskError, match="weights"):
            next(corpus(0, weights))
