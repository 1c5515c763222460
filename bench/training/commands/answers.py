"""`python -m bench.train answers`: a target answers prompts, as training data for its drafters (conf/answers.yaml).

The prompts: what the target asks itself, shipped problems, the embedded benchmarks."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveInt

from bench.config.section import check_known, validated
from bench.training.options import TargetOptions
from bench.training.self_distillation import answered_by, messages
from methods.decode import Limits, Request, generate
from methods.method import autoregressive
from methods.sampling import Sampling
from results.store.sample import FailedSample
from tasks.base import Prompt
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


class Answers(TargetOptions):
    """conf/answers.yaml, which explains every field."""

    tokens: PositiveInt
    sources: dict[str, float] = Field(min_length=1)
    chunk: PositiveInt
    temperatures: list[float] = Field(min_length=1)
    prompt_tokens: PositiveInt
    max_new_tokens: PositiveInt


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


def plan(settings: Answers, target: LanguageModel) -> Iterator[tuple[str, float, list[str]]]:
    """Chunks of prompts until the sources are used up: source, temperature of the answers, prompts.

    A function of the settings and the target."""
    rng = random.Random(settings.seed)
    streams = {name: chunks(name, settings.chunk, settings.seed, target) for name in settings.sources}
    while streams:
        names = list(streams)
        name = rng.choices(names, [settings.sources[name] for name in names])[0]
        temperature = rng.choice(settings.temperatures)
        prompts = next(streams[name], None)
        if prompts is None:
            del streams[name]
        else:
            yield name, temperature, prompts


def complete_chunks(file: Path) -> tuple[set[int], int]:
    """The numbers of the chunks that `file` holds whole, and the answer tokens in them; what was written of another
    chunk is dropped from the file."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    rows = [(json.loads(line), line) for line in lines if line.endswith("\n")]
    held = Counter(row["chunk"] for row, _ in rows)
    whole = [(row, line) for row, line in rows if held[row["chunk"]] == row["of"]]
    if len(whole) < len(lines):
        file.write_text("".join(line for _, line in whole), encoding="utf-8")
    return {row["chunk"] for row, _ in whole}, sum(row["tokens"] for row, _ in whole)


def answer_chunk(settings: Answers, target: LanguageModel, number: int, source: str, temperature: float,
                 texts: list[str]) -> list[dict[str, Any]]:
    """The rows of one chunk: the prompts that are short enough, answered by the target."""
    prompts = [Prompt(id=str(place), turns=(text,)) for place, text in enumerate(texts)
               if len(target.encode([{"role": "user", "content": text}])) <= settings.prompt_tokens]
    if not prompts:
        return []
    key = f"{settings.seed}/{number}"
    answers = answered_by(target, prompts, temperature, settings.max_new_tokens, key)
    whole = [(prompt, turn) for prompt in prompts if not isinstance(turns := answers[prompt.id], FailedSample)
             for turn in turns]
    return [{"chunk": number, "of": len(whole), "source": source, "temperature": temperature, "finish": turn.finish,
             "tokens": len(turn.output_ids), "messages": messages(prompt, [turn.text])} for prompt, turn in whole]


def run(config: Mapping[str, Any]) -> None:
    """Answer prompts until there are `tokens` of answers. Raises ValueError, ModelError, TaskError, one line."""
    settings = validated(Answers, config, "")
    for name in settings.sources:
        check_known("sources", name, SOURCES)
    target = settings.load_target()
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    done, tokens = complete_chunks(settings.out)
    with settings.out.open("a", encoding="utf-8") as out:
        for number, (source, temperature, texts) in enumerate(plan(settings, target)):
            if tokens >= settings.tokens:
                break
            if number in done:
                continue
            rows = answer_chunk(settings, target, number, source, temperature, texts)
            out.write("".join(json.dumps(row) + "\n" for row in rows))
            out.flush()
            tokens += sum(row["tokens"] for row in rows)
            print(f"\r{settings.out}: {tokens:,} of {settings.tokens:,} answer tokens", end="", flush=True)
    print(f"\r{settings.out}: {tokens:,} answer tokens")
