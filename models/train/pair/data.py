"""The embedded benchmarks as training conversations."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from models.train.packing import ConversationSource
from models.train.texts import EXERCISES, corpus, examples

if TYPE_CHECKING:
    from models.train.packing import Conversation
    from models.train.texts.example import Example

CALIBRATION = 64
"""Held-out conversations of each embedded benchmark."""


def conversation(example: Example) -> Conversation:
    """An example as (role, content) messages."""
    pairs = zip(example.turns, example.answers, strict=True)
    return [
        message for turn, answer in pairs for message in (("user", turn), ("assistant", answer))
    ]


def stream(
    seed: int, mix: Mapping[str, float], step: int, exercises: float = 0.0
) -> Iterator[Conversation]:
    """The endless training conversations of one step: the benchmarks in proportion to `mix`, and a
    share of exercises.

    A pure function of its arguments. Raises TaskError for an unknown benchmark or an impossible
    mix."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    total = sum(mix.values())
    weights = {name: (1 - exercises) * weight / total for name, weight in mix.items()}
    examples = corpus(int.from_bytes(digest), weights | dict.fromkeys(EXERCISES, exercises))
    return (conversation(example) for _, example in examples)


def embedded(seed: int, mix: Mapping[str, float]) -> ConversationSource:
    """The embedded benchmarks' training stream; their calibration split is held out."""
    calibration = [
        conversation(e)
        for name in mix
        for e in islice(examples(name, "calibration", seed), CALIBRATION)
    ]

    def held_out(step: int, exercises: float) -> Iterator[Conversation]:
        rng = random.Random(f"{seed}/{step}")
        while True:
            yield rng.choice(calibration)

    return ConversationSource(partial(stream, seed, mix), held_out)
