"""`python -m bench.train answers`: a target answers prompts, as training data for its drafters (conf/answers.yaml)."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveInt

from bench.config.section import check_known, validated
from bench.training.options import TargetOptions
from bench.training.own_prompts import SOURCES, chunks
from bench.training.self_distillation import answered_by, messages
from results.store.sample import FailedSample
from tasks.base import Prompt

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


class Answers(TargetOptions):
    """conf/answers.yaml, which explains every field."""

    tokens: PositiveInt
    sources: dict[str, float] = Field(min_length=1)
    chunk: PositiveInt
    temperatures: list[float] = Field(min_length=1)
    prompt_tokens: PositiveInt
    max_new_tokens: PositiveInt


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
