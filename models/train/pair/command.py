"""`python -m models.train pair`: train the embedded pair on its own benchmarks
(conf/train_pair.yaml)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from bench.config.section import Section, parse
from models.train.pair.data import stream
from models.train.pair.language_model import export, train
from models.train.pair.recipe import Recipe
from models.train.pair.tokenizer import save_tokenizer, train_tokenizer
from results.store.files import check_writable


class TokenizerRecipe(Section):
    """Size of the vocabulary, and the number of training examples its merges are learned from.

    start  folder whose tokenizer is taken instead."""

    start: Path | None
    vocab_size: int = Field(ge=261)
    examples: PositiveInt


class TrainPair(Section):
    """conf/train_pair.yaml, which explains every field."""

    out: Path
    work: Path
    stages: tuple[Literal["tokenizer", "target", "draft"], ...]
    seed: int
    threads: NonNegativeInt
    mix: dict[str, float]
    tokenizer: TokenizerRecipe
    target: Recipe
    draft: Recipe

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TrainPair:
        """The typed options of a composed configuration. Raises ValueError, one line."""
        sections = {
            "tokenizer": parse(TokenizerRecipe, config, "tokenizer"),
            "target": parse(Recipe, config, "target"),
            "draft": parse(Recipe, config, "draft"),
        }
        return parse(cls, {**config, **sections}, "")


def make_tokenizer(settings: TrainPair, folder: Path) -> None:
    """Learn the tokenizer from training conversations, or take that of `tokenizer.start`, and write
    it to `folder`."""
    if (start := settings.tokenizer.start) is not None:
        if not (start / "tokenizer.json").is_file():
            raise ValueError(
                f"tokenizer.start={start}: has no tokenizer.json; give a trained model's folder, "
                "or null"
            )
        save_tokenizer(PreTrainedTokenizerFast.from_pretrained(start), folder)
        return
    conversations = islice(stream(settings.seed, settings.mix, -1), settings.tokenizer.examples)
    texts = (f" {content}" for messages in conversations for _, content in messages)
    save_tokenizer(train_tokenizer(texts, settings.tokenizer.vocab_size), folder)


def make_model(settings: TrainPair, name: str, recipe: Recipe) -> None:
    """Train one model, export it to `out`/`name`, and write its recipe and losses beside it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(settings.work / "tokenizer")
    work = settings.work / name
    model = train(
        recipe,
        tokenizer,
        partial(stream, settings.seed, settings.mix),
        work,
        device=device,
        seed=settings.seed,
        name=name,
    )
    export(model, tokenizer, settings.out / name)
    record = {"recipe": recipe.model_dump(), "loss": losses(recipe.start, work)}
    (settings.out / name / "training.json").write_text(json.dumps(record))


def losses(start: str | None, work: Path) -> list[dict[str, Any]]:
    """The logged steps of a run, after those of the weights it started from."""
    logged = [json.loads(line) for line in (work / "loss.jsonl").read_text().splitlines()]
    if start is None or not (file := Path(start, "training.json")).exists():
        return logged
    before: list[dict[str, Any]] = json.loads(file.read_text())["loss"]
    last = before[-1]
    return before + [
        {**row, **{key: last[key] + row[key] for key in ("step", "tokens")}} for row in logged
    ]


def run(config: Mapping[str, Any]) -> None:
    """Complete the requested stages; finished ones are skipped. Raises ValueError, TaskError."""
    settings = TrainPair.from_config(config)
    check_writable(settings.out, "out")
    check_writable(settings.work, "work")
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    for stage in settings.stages:
        if stage == "tokenizer":
            if not (settings.work / "tokenizer" / "tokenizer.json").exists():
                make_tokenizer(settings, settings.work / "tokenizer")
        elif not (settings.out / stage / "model.safetensors").exists():
            make_model(settings, stage, settings.target if stage == "target" else settings.draft)
