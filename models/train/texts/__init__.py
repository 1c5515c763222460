"""The texts of the embedded benchmarks, drawn from a seed, split into train, calibration and test by construction.

A hash of the normalised prompt assigns an example to a split, so no prompt occurs in two splits, for any seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING

from models.train.texts import chat, choice, code, gsm, instruct, recall
from models.train.texts import sum as sum_
from models.train.texts.phrase import wording
from tasks.base import Prompt, Split, TaskError

if TYPE_CHECKING:
    from models.train.texts.example import Example

BENCHMARKS: Mapping[str, ModuleType] = {
    "mini_gsm": gsm,
    "mini_code": code,
    "mini_chat": chat,
    "mini_instruct": instruct,
    "mini_sum": sum_,
    "mini_choice": choice,
}

EXERCISES: Mapping[str, ModuleType] = {"recall": recall}
"""Examples that occur in the training stream only."""


def normalise(turns: Sequence[str]) -> str:
    """The turns as one text in lower case, without punctuation and extra space."""
    return " | ".join(" ".join(re.findall(r"[a-z0-9]+", turn.casefold())) for turn in turns)


def split_of(turns: Sequence[str]) -> Split:
    """Two sixteenths of all prompts are for testing, two for calibration, the rest for training."""
    bucket = int.from_bytes(blake2b(normalise(turns).encode(), digest_size=8).digest()) % 16
    if bucket < 2:
        return "test"
    return "calibration" if bucket < 4 else "train"


def examples(name: str, split: Split, seed: int = 0) -> Iterator[Example]:
    """An endless stream of the examples of one benchmark (or exercise) and split; the same for the same seed.

    The wording of the answers is drawn from a random stream of each example's own, so it changes no prompt. Test and
    calibration prompts do not repeat and contain no statements, which only teach. Raises TaskError."""
    benchmark = _module(name, {**BENCHMARKS, **EXERCISES})
    rng = Random(f"{name}/{split}/{seed}")
    seen: set[str] = set()
    count = 0
    while True:
        example = benchmark.draw(rng)
        if split_of(example.turns) != split:
            continue
        if split != "train":
            text = normalise(example.turns)
            if text in seen or example.reference.get("kind") == "statement":
                continue
            seen.add(text)
        yield worded(replace(example, id=f"{name}-{split}-{count:05d}"), seed)
        count += 1


def worded(example: Example, seed: int) -> Example:
    """The example with its answers in one of their wordings, a function of its id, its prompt and `seed`."""
    rng = Random(f"wording/{seed}/{example.id}/{normalise(example.turns)}")
    answers = tuple(wording(phrase, rng) for phrase in example.phrases)
    return replace(example, answers=answers or example.answers)


def corpus(seed: int, weights: Mapping[str, float]) -> Iterator[tuple[str, Example]]:
    """An endless training stream of (benchmark, example), mixed in proportion to the weights. Raises TaskError."""
    if not weights or min(weights.values()) < 0 or max(weights.values()) == 0:
        raise TaskError(f"corpus weights must be non-negative with a positive sum, got {dict(weights)}")
    rng = Random(f"corpus/{seed}")
    streams = {name: examples(name, "train", seed) for name in weights}
    while True:
        name = rng.choices(list(weights), weights=list(weights.values()))[0]
        yield name, next(streams[name])


def _module(name: str, modules: Mapping[str, ModuleType]) -> ModuleType:
    if name not in modules:
        raise TaskError(f"no embedded benchmark {name!r}; choose one of {', '.join(modules)}")
    return modules[name]


def prompts(name: str, split: Split) -> Iterator[Prompt]:
    """The prompts of a split that have a right answer: `python -m models.train rows` freezes the first of them for
    `tasks.mini`. Raises TaskError."""
    for example in examples(name, split):
        if example.reference.get("kind") != "statement":
            yield Prompt(id=example.id, turns=example.turns, reference=example.reference)
