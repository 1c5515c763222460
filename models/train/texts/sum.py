"""mini_sum: a short news article and a summary of two or three sentences that copies facts and rephrases the rest."""

from __future__ import annotations

from random import Random

from models.train.texts.events import ASIDES, EVENTS, POOLS, Event
from models.train.texts.example import Example
from models.train.texts.phrase import either, plain

REQUESTS = (
    "Sum up this news: {article}",
    "Write a short summary of this text. {article}",
    "Read this and sum it up in a few words. {article}",
    "What is this news about? {article}",
    "Here is some news. {article} Please write a short summary.",
)
ALTERNATIVES = 3


def draw(rng: Random) -> Example:
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


def _facts(rng: Random, event: Event) -> dict[str, str]:
    """A value for each fact, no two of them the same."""
    facts: dict[str, str] = {}
    for fact, pool in event.facts.items():
        facts[fact] = rng.choice([value for value in POOLS[pool] if value not in facts.values()])
    return facts


def _article(rng: Random, event: Event) -> list[str]:
    """The event's lines in order, with two to five asides strewn in: its own late, when all they speak of is known."""
    sentences = [rng.choice(wordings) for wordings in event.lines]
    for aside in rng.sample(event.asides, rng.randint(1, 2)):
        sentences.insert(rng.randint(5, len(sentences)), aside)
    for aside in rng.sample(ASIDES, rng.randint(1, 3)):
        sentences.insert(rng.randint(1, len(sentences)), aside)
    return sentences
