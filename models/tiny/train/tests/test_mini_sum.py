"""mini_sum: summaries stand on their article, ROUGE-L is 1 for each alternative and falls with every error."""

from __future__ import annotations

import random
import re
from string import Formatter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import events
from models.tiny.train.texts import sum as news
from tasks.mini import scores

SEEDS = st.integers(0, 2**32)


def words_of(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+|\d+", text)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_gold_and_each_alternative_score_one(seed):
    example = news.draw(random.Random(seed))
    assert example.answers[0] in example.reference["summaries"]
    assert len(set(example.reference["summaries"])) == news.ALTERNATIVES
    for summary in example.reference["summaries"]:
        assert scores.news(example.reference, [f" {summary}\n"]).value == pytest.approx(1.0)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_every_number_and_name_of_a_summary_is_in_the_article(seed):
    example = news.draw(random.Random(seed))
    told = set(words_of(example.turns[0]))
    values = {value for values in events.POOLS.values() for value in values}
    for summary in example.reference["summaries"]:
        used = {word for word in words_of(summary) if word in values or word.isdigit()}
        assert used, summary
        assert used <= told, used - told


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_every_error_costs(seed):
    rng = random.Random(seed)
    example = news.draw(rng)
    words = example.answers[0].split()
    place = rng.randrange(len(words))
    number = next(place for place, word in enumerate(words) if word.isdigit())
    damaged = [
        words[:place] + words[place + 1 :],
        [*words[:place], "frog", *words[place + 1 :]],
        [*words[:number], words[number] + "0", *words[number + 1 :]],
        words[::-1],
        [*words, "frog"],
    ]
    for text in damaged:
        assert 0.0 < scores.news(example.reference, [" ".join(text)]).value < 1.0, text


def test_rouge_by_hand():
    """Longest common subsequence 3 of 4 and 6 words: precision 3/4, recall 3/6, F1 0.6; the nearer reference counts."""
    reference = {"summaries": ["one two three four five six", "seven"]}
    assert scores.news(reference, ["one two six nine"]).value == pytest.approx(0.6)
    assert scores.news(reference, ["Seven."]).value == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_same_seed_same_example_and_no_text_scores_zero(seed):
    example = news.draw(random.Random(seed))
    assert example == news.draw(random.Random(seed))
    assert scores.news(example.reference, [""]).value == scores.news(example.reference, []).value == 0.0


@pytest.mark.slow
def test_two_thousand_are_within_length():
    rng = random.Random(0)
    examples = [news.draw(rng) for _ in range(2_000)]
    assert len({example.turns for example in examples}) > 1_980
    for example in examples:
        assert 65 <= len(words_of(example.turns[0])) <= 130
        assert 2 <= len(re.findall(r"\.(?: |$)", example.answers[0])) <= 3


@pytest.mark.parametrize("event", events.EVENTS)
def test_wordings_name_only_known_facts_and_each_line_wording_the_facts_a_summary_needs(event):
    def named(wording: str) -> set[str]:
        return {fact for _, fact, _, _ in Formatter().parse(wording) if fact}

    every = [wording for group in (*event.lines, *event.summary, event.asides) for wording in group]
    assert set().union(*map(named, every)) == set(event.facts)
    always_told = set().union(*(set.intersection(*map(named, line)) for line in event.lines))
    for sentence in event.summary:
        for wording in sentence:
            assert named(wording) <= always_told, wording
