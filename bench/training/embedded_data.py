"""The embedded benchmarks as training conversations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tasks.mini import EXERCISES, corpus

if TYPE_CHECKING:
    from methods.training.packing import Conversation
    from tasks.base import Example


def conversation(example: Example) -> Conversation:
    """An example as (role, content) messages."""
    pairs = zip(example.turns, example.answers, strict=True)
    return [message for turn, answer in pairs for message in (("user", turn), ("assistant", answer))]


def stream(seed: int, mix: Mapping[str, float], step: int, exercises: float = 0.0) -> Iterator[Conversation]:
    """The endless training conversations of one step: the benchmarks in proportion to `mix`, and a share of exercises.

    A pure function of its arguments. Raises TaskError for an unknown benchmark or an impossible mix."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    total = sum(mix.values())
    weights = {name: (1 - exercises) * weight / total for name, weight in mix.items()}
    examples = corpus(int.from_bytes(digest), weights | dict.fromkeys(EXERCISES, exercises))
    return (conversation(example) for _, example in examples)
