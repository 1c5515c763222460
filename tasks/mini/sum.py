"""mini_sum: a short news article and a summary of two or three sentences that copies facts and rephrases the rest."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tasks.base import Example, Score
from tasks.mini.events import ASIDES, EVENTS, POOLS, Event
from tasks.mini.phrase import either, plain
from tasks.scorers.rouge import rouge_l

METRIC = "rougeL"
PROPORTION = False
VERSION = 1

REQUESTS = (
    "Sum up this news: {article}",
    "Write a short summary of this text. {article}",
    "Read this and sum it up in a few words. {article}",
    "What is this news about? {article}",
    "Here is some news. {article} Please write a short summary.",
)
ALTERNATIVES = 3
KNOWN = frozenset(value.lower() for values in POOLS.values() for value in values)


def draw(rng: random.Random) -> Example:
    """One article and its summary; `reference["summaries"]` holds it together with other wordings that are as good."""
    event = rng.choice(EVENTS)
    facts = _facts(rng, event)
    article = " ".join(_article(rng, event)).format(**facts)
    phrases: dict[str, str] = {}
    while len(phrases) < ALTERNATIVES:
        chosen = [rng.choice(wordings) for wordings in event.summary]
        free = " ".join(map(either, chosen, event.summary)).format(**facts)
        phrases.setdefault(plain(free), free)
    prompt = rng.choice(REQUESTS).format(article=article)
    summaries = list(phrases)
    return Example("", (prompt,), (summaries[0],), {"summaries": summaries}, (phrases[summaries[0]],))


def _facts(rng: random.Random, event: Event) -> dict[str, str]:
    """A value for each fact, no two of them the same."""
    facts: dict[str, str] = {}
    for fact, pool in event.facts.items():
        facts[fact] = rng.choice([value for value in POOLS[pool] if value not in facts.values()])
    return facts


def _article(rng: random.Random, event: Event) -> list[str]:
    """The event's lines in order, with two to five asides strewn in: its own late, when all they speak of is known."""
    sentences = [rng.choice(wordings) for wordings in event.lines]
    for aside in rng.sample(event.asides, rng.randint(1, 2)):
        sentences.insert(rng.randint(5, len(sentences)), aside)
    for aside in rng.sample(ASIDES, rng.randint(1, 3)):
        sentences.insert(rng.randint(1, len(sentences)), aside)
    return sentences


def score(reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
    """ROUGE-L against the reference summary that is nearest. details: "facts" is 1 for any wording of the facts."""
    summaries = reference["summaries"]
    return replace(rouge_l(summaries, texts), details={"facts": float(bool(texts) and _true(summaries, texts[0]))})


def _true(summaries: Sequence[str], text: str) -> bool:
    """Whether the text names each fact that all summaries name, and none that no summary names."""
    named = [_named(summary) for summary in summaries]
    return set.intersection(*named) <= _named(text) <= set.union(*named)


def _named(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]+|\d+", text.lower()) if word in KNOWN or word.isdigit()}
