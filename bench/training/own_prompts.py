"""Training prompts for a target without data of its own: what it asks itself, shipped problems, embedded benchmarks."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from itertools import count, islice
from typing import TYPE_CHECKING

from methods.decode import Limits, Request, generate
from methods.method import autoregressive
from methods.sampling import Sampling
from tasks.mini import BENCHMARKS, rows
from tasks.sources import DATA

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

USER, GSM8K = "user", "gsm8k"
SOURCES = (USER, GSM8K, *BENCHMARKS)
LONGEST_INSTRUCTION = 96
"""Tokens of an instruction that the target samples; a longer one is left out."""
FEWEST_WORDS = 3
"""Words of a usable instruction."""
RUN = 13
"""Words in a row that a training prompt may not share with a test prompt."""
_MARK = "@@"
"""Stands in the user's place to find where a chat template puts it."""


def instructions(target: LanguageModel, most: int, key: str) -> list[str]:
    """At most `most` instructions, sampled from the target behind the start of an empty user turn (temperature 1,
    top-p 0.9; Xu et al. 2024, "Magpie"); unusable ones are left out. A function of the target and `key`."""
    text = target.tokenizer.decode(target.encode([{"role": "user", "content": _MARK}]))
    prefix = target.encode_text(text[:text.index(_MARK)])
    method = autoregressive(target, Sampling(1.0, 0, 0.9))
    requests = [Request(list(prefix), f"{key}/{number}") for number in range(most)]
    generations = generate(method, requests, Limits(LONGEST_INSTRUCTION, target.eos_ids))
    texts = [target.decode(g.output_ids).strip() for g in generations if g.finish == "eos"]
    return [text for text in texts if len(text.split()) >= FEWEST_WORDS]


def gsm8k_problems(seed: int) -> list[str]:
    """The training problems of GSM8K, shuffled."""
    with gzip.open(DATA / "gsm8k" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        problems = [json.loads(line)["question"] for line in file]
    random.Random(seed).shuffle(problems)
    return problems


def word_runs(text: str) -> set[tuple[str, ...]]:
    """All runs of `RUN` words of a text, without case and punctuation."""
    words = re.findall(r"\w+", text.casefold())
    return {tuple(words[start:start + RUN]) for start in range(len(words) - RUN + 1)}


@cache
def runs_of_tests() -> frozenset[tuple[str, ...]]:
    """The word runs of every shipped test prompt."""
    runs: set[tuple[str, ...]] = set()
    for file in sorted(DATA.glob("*/*.jsonl.gz")):
        if file.name != "train.jsonl.gz":
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines]
            texts = [str(row[key]) for row in rows for key in ("question", "prompt", "turns") if row.get(key)]
            runs.update(*map(word_runs, texts))
    return frozenset(runs)


def is_tested(text: str) -> bool:
    """Whether a text shares `RUN` words in a row with a shipped test prompt: it is not trained on (the usual measure of
    contamination: Brown et al. 2020, "GPT-3", appendix C)."""
    return not word_runs(text).isdisjoint(runs_of_tests())


def chunks(source: str, size: int, seed: int, target: LanguageModel) -> Iterator[list[str]]:
    """The prompts of one source, `size` at a time, without those that a test shares (`is_tested`); GSM8K and the
    benchmarks end after their last prompt. Raises TaskError."""
    for texts in _chunks(source, size, seed, target):
        yield [text for text in texts if not is_tested(text)]


def _chunks(source: str, size: int, seed: int, target: LanguageModel) -> Iterator[list[str]]:
    if source == USER:
        for number in count():
            yield instructions(target, size, f"{seed}/{USER}/{number}")
    prompts = iter(gsm8k_problems(seed) if source == GSM8K else [row.turns[0] for row in rows(source)["train"]])
    while batch := list(islice(prompts, size)):
        yield batch
