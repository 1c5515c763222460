"""The embedded benchmarks: disjoint splits, reproducible streams, gold answers that score, few words."""

import json
import re
from itertools import islice

import pytest

from models.tiny.train.texts import BENCHMARKS, corpus, examples, normalise, prompts, split_of
from tasks.base import TaskError
from tasks.mini import MiniTask

ALL = pytest.mark.parametrize("name", BENCHMARKS)
VOCABULARY = 900


@pytest.mark.slow
@ALL
def test_splits_share_no_prompt(name):
    test = {normalise(example.turns) for example in islice(examples(name, "test"), 300)}
    calibration = {normalise(example.turns) for example in islice(examples(name, "calibration"), 300)}
    train = {normalise(example.turns) for seed in (0, 1) for example in islice(examples(name, "train", seed), 1000)}
    assert len(test) == len(calibration) == 300
    assert not test & calibration and not train & (test | calibration)


def test_case_space_and_punctuation_do_not_change_the_split():
    assert normalise(["Tom has 5 hats.", "Why?"]) == normalise(["tom  has 5 hats", "why"])
    assert normalise(["Tom has", "5 hats"]) != normalise(["Tom has 5 hats"])
    assert normalise(["Tom has 5 hats"]) != normalise(["Tom has 6 hats"])


@ALL
def test_the_same_seed_gives_the_same_stream(name):
    first, again, other = (list(islice(examples(name, "train", seed), 50)) for seed in (3, 3, 4))
    assert first == again != other
    assert [example.id for example in first[:2]] == [f"{name}-train-00000", f"{name}-train-00001"]
    assert all(split_of(example.turns) == "train" for example in first)


@pytest.mark.slow
@ALL
def test_the_task_asks_its_own_test_split_and_its_gold_answers_score(name):
    task = MiniTask(name)
    asked = task.prompts(60, seed=0)
    assert asked == task.prompts(60, seed=9) == task.prompts(None)[:60]
    gold = list(islice(examples(name, "test"), 60))
    assert [prompt.id for prompt in asked] == [example.id for example in gold]
    assert [prompt.turns for prompt in asked] == [example.turns for example in gold]
    for prompt, example in zip(asked, gold, strict=True):
        assert len(example.answers) == len(prompt.turns)
        assert prompt.reference.get("kind") != "statement"
        score = task.score(prompt, example.answers)
        if name == "mini_sum":  # ROUGE counts the words of three references, not all that are as good
            assert score.details["facts"] == 1 and 0.4 < score.value <= 1
        else:
            assert score.value == pytest.approx(1)
        blank = task.score(prompt, [""] * len(prompt.turns)).value
        assert blank is not None and blank < 0.5


@ALL
def test_the_frozen_rows_are_those_that_are_drawn(name):
    for split in ("test", "calibration", "train"):
        drawn = list(islice(prompts(name, split), 40))
        held = MiniTask(name).prompts_of(split, 40)
        assert [(prompt.id, prompt.turns) for prompt in held] == [(prompt.id, prompt.turns) for prompt in drawn]
        assert [prompt.reference for prompt in held] == [json.loads(json.dumps(prompt.reference)) for prompt in drawn]
        assert len(MiniTask(name).prompts_of(split, 1024)) == 1024


def test_the_corpus_mixes_by_weight_from_the_training_split():
    weights = {"mini_gsm": 3.0, "mini_choice": 1.0}
    mixed = list(islice(corpus(2, weights), 1000))
    assert mixed == list(islice(corpus(2, weights), 1000))
    assert [name for name, _ in mixed].count("mini_gsm") == pytest.approx(750, abs=60)
    assert all(split_of(example.turns) == "train" and example.id.startswith(name) for name, example in mixed)


def test_all_words_fit_a_small_vocabulary():
    words = set()
    for name in BENCHMARKS:
        for example in islice(examples(name, "train"), 1000):
            words |= set(re.findall(r"[a-z]+", " ".join((*example.turns, *example.answers)).lower()))
    assert 300 < len(words) < VOCABULARY


def test_unknown_names_and_impossible_numbers_are_refused():
    with pytest.raises(TaskError, match=r"mini_gms.*choose one of mini_gsm"):
        MiniTask("mini_gms")
    with pytest.raises(TaskError, match="choose one of"):
        next(examples("gsm", "test"))
    with pytest.raises(TaskError, match="at least 1"):
        MiniTask("mini_gsm").prompts(0)
    with pytest.raises(TaskError, match="n=1025: this benchmark has 1,024 test prompts"):
        MiniTask("mini_gsm").prompts(1025)
    for weights in ({}, {"mini_gsm": 0.0}, {"mini_gsm": -1.0, "mini_choice": 2.0}):
        with pytest.raises(TaskError, match="weights"):
            next(corpus(0, weights))
