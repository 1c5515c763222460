"""mini_chat: conversations of two turns; the second can only be answered with facts from the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from string import Formatter
from typing import Any

from models.train.texts.errands import SHOPPING, TRAVEL
from models.train.texts.example import Example
from models.train.texts.meetings import APPOINTMENT, FRIENDS, LOST_ITEM
from models.train.texts.phrase import either, plain
from models.train.texts.scenes import INTRODUCTION, PARTY, POOLS, Scene

SCENES: tuple[Scene, ...] = (INTRODUCTION, PARTY, SHOPPING, TRAVEL, LOST_ITEM, APPOINTMENT, FRIENDS)
GREETED = ("Nice", "Hello", "Hi", "Welcome", "I am sorry", "Oh no", "I will help", "I see")
OPENERS = ("", "", "Got it. ", "Thanks for telling me. ", "I see. ", "All right. ", "Good to know. ")
MORE_OPENERS = ("Yes. ", "Okay. ", "Right. ", "Thanks. ", "Good. ")
LEADS = ("", "", "", "Of course. ", "Sure. ")
MORE_LEADS = ("Yes. ", "Okay. ", "Right. ", "Good. ", "All right. ")
MORE_CLOSERS = (" Good.", " All right?", " Is that right?", " Please ask me more.")
TAILS = "[||| Good?| Right?| All right?| Good luck!| I hope this helps.]"
"""What may end the second answer."""


def draw(rng: Random) -> Example:
    """One conversation of two turns, with the facts each answer must and may name."""
    scene = rng.choice(SCENES)
    facts = _facts(rng, scene)
    ask = rng.choice(scene.asks)
    ack = rng.choice(scene.acks)
    opener = "" if plain(ack).startswith(GREETED) else rng.choice(OPENERS)
    turns = (rng.choice(scene.tells).format(**facts), rng.choice(ask.questions).format(**facts))
    first = either(_opened(ack, opener), [_opened(other, opener if other == ack else "") for other in scene.acks])
    first += either(rng.choice(scene.closers), scene.closers + MORE_CLOSERS)
    second = either(rng.choice(LEADS), LEADS + MORE_LEADS) + either(rng.choice(ask.answers), ask.answers) + TAILS
    phrases = (first.format(**facts), second.format(**facts))
    reference = {"turns": [_expect(scene.acks, facts), _expect(ask.answers, facts)]}
    return Example("", turns, tuple(map(plain, phrases)), reference, phrases)


def _opened(ack: str, opener: str) -> str:
    """The acknowledgement after any opener, unless it begins with a greeting."""
    return ack if plain(ack).startswith(GREETED) else either(opener, OPENERS + MORE_OPENERS) + ack


def _facts(rng: Random, scene: Scene) -> dict[str, str]:
    """A value for each fact; no two facts of a scene share one, numbers aside."""
    facts: dict[str, str] = {}
    for fact, pool in scene.facts.items():
        facts[fact] = rng.choice([value for value in POOLS[pool] if value.isdigit() or value not in facts.values()])
    return {**facts, **scene.derive(facts)}


def _expect(wordings: Sequence[str], facts: Mapping[str, str]) -> dict[str, Any]:
    """Facts that every wording names are needed, ordered by fact name; facts that only some name are allowed."""
    named = [{fact for _, fact, _, _ in Formatter().parse(wording) if fact} for wording in wordings]
    needed, allowed = sorted(set.intersection(*named)), sorted(set.union(*named))
    groups: dict[str, list[str]] = {}
    for fact in needed:
        groups.setdefault(fact.rpartition("_")[0] if fact.endswith(("_a", "_b")) else fact, []).append(facts[fact])
    return {"need": list(groups.values()), "allow": sorted({facts[fact] for fact in allowed})}
