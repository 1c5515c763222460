"""`python -m bench.train_heads`: trains drafter heads for a target and writes them in the official formats
(conf/train_heads.yaml)."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveInt, ValidationError

from bench.config.command import run_yaml_command
from bench.config.errors import ConfigError, format_validation, unknown_key
from bench.config.schema import DType, Section
from bench.train_pair import conversation, stream
from bench.training.heads_card import write_card
from bench.training.self_distillation import OwnAnswers, with_own_answers
from methods.engine.language_model import LanguageModel
from methods.engine.loading import load_model
from methods.training.heads.conversations import ChatPacker, Records, load_records
from methods.training.heads.frozen_target import FrozenTarget
from methods.training.heads.loop import ConversationSource, measure, train
from methods.training.heads.recipes import RECIPES
from methods.training.heads.trainers import TRAINERS
from methods.training.packing import Conversation
from tasks.mini import examples

EMBEDDED = "embedded"
CALIBRATION = 64
"""Held-out conversations of each embedded benchmark."""


class TrainHeads(Section):
    """Everything but the heads' own sections."""

    target: str
    out: Path
    work: Path
    heads: list[str]
    data: str
    split: str
    mix: dict[str, float]
    own_answers: OwnAnswers
    measure: PositiveInt
    seed: int
    threads: int
    device: str | None
    dtype: DType
    pickled: bool


def embedded(seed: int, mix: Mapping[str, float]) -> ConversationSource:
    """The embedded benchmarks' training stream; their calibration split is held out."""
    drawn = [conversation(e) for name in mix for e in islice(examples(name, "calibration", seed), CALIBRATION)]

    def held_out(step: int, exercises: float) -> Iterator[Conversation]:
        rng = random.Random(f"{seed}/{step}")
        if step < 0:  # all of them, each once
            yield from rng.sample(drawn, len(drawn))
        while True:
            yield rng.choice(drawn)

    return ConversationSource(partial(stream, seed, mix), held_out)


def identity(settings: TrainHeads) -> str:
    """What the conversations depend on, the target left out."""
    told = settings.data, settings.mix if settings.data == EMBEDDED else settings.split
    return json.dumps([*told, settings.seed])


def source_of(settings: TrainHeads, target: LanguageModel) -> ConversationSource:
    if settings.data == EMBEDDED:
        source = embedded(settings.seed, settings.mix)
    else:
        records = Records(load_records(settings.data, settings.split), settings.data, settings.seed)
        source = ConversationSource(records.train, records.held_out)
    if settings.own_answers.prompts:
        source = with_own_answers(source, target, settings.own_answers, settings.work, identity(settings),
                                  settings.seed)
    return source


def make_head(name: str, recipe: Any, target: LanguageModel, source: ConversationSource, settings: TrainHeads) -> None:
    """Train, measure and export one head, unless its folder is complete."""
    out, work = settings.out / name, settings.work / name
    if (out / "training.json").exists():
        if json.loads((out / "training.json").read_text())["target"] != target.fingerprint:
            raise ConfigError(f"{out}: holds a head of another target; remove it, or give another folder with out=DIR")
        print(f"{out}: complete")
        return
    torch.manual_seed(settings.seed)
    trainer = TRAINERS[name](recipe, FrozenTarget(target))
    packer = partial(ChatPacker, target.tokenizer, length=recipe.row_tokens, eos_ids=target.eos_ids)
    device = str(target.device)
    data = identity(settings) + settings.own_answers.model_dump_json()
    train(trainer, packer(source.train), work, device=device, seed=settings.seed, name=name, identity=data)
    ranks = measure(trainer, packer(source.held_out), device=device, seed=settings.seed, batches=settings.measure)
    print(describe(name, ranks))
    trainer.export(out)
    if settings.pickled:
        trainer.export(out, pickled=True)
    curve = [json.loads(line) for line in (work / "loss.jsonl").read_text().splitlines()]
    record = {"target": target.fingerprint, "recipe": recipe.model_dump(), "data": settings.data,
              "own_answers": settings.own_answers.model_dump(), "seed": settings.seed,
              "parameters": sum(p.numel() for p in trainer.head.parameters() if p.requires_grad),
              "rank_share": [[round(share, 5) for share in step] for step in ranks], "loss": curve}
    (out / "training.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


def describe(name: str, ranks: list[list[float]]) -> str:
    """Held-out agreement with the target, a line a draft step."""
    lines = [f"{name}: held-out agreement with the target's most likely token, all earlier drafts being right"]
    for k, shares in enumerate(ranks, start=1):
        lines.append(f"  draft token {k}: top-1 {shares[0]:6.1%}   top-5 {sum(shares[:5]):6.1%}")
    return "\n".join(lines)


def parse(config: Mapping[str, Any]) -> tuple[TrainHeads, dict[str, Any]]:
    """The settings and each wanted head's recipe. Raises ConfigError, one line."""
    raw = dict(config)
    recipes = {name: raw.pop(name) for name in RECIPES if name in raw}
    settings = _validated(TrainHeads, raw, "")
    for name in settings.heads:
        if name not in RECIPES:
            raise ConfigError(unknown_key(f"heads={name}", (f"heads={kind}" for kind in RECIPES), what="unknown"))
    return settings, {name: _validated(RECIPES[name], recipes[name], name) for name in settings.heads}


def _validated(kind: type, values: Mapping[str, Any], section: str) -> Any:
    try:
        return kind(**values)
    except ValidationError as error:
        raise ConfigError(format_validation(error, section, kind.model_fields)) from error


def run(config: Mapping[str, Any]) -> None:
    settings, recipes = parse(config)
    torch.set_num_threads(settings.threads or os.cpu_count())
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    target = load_model(settings.target, dtype=settings.dtype, device=device)
    source = source_of(settings, target)
    for name, recipe in recipes.items():
        make_head(name, recipe, target, source, settings)
    print(write_card(settings.out))


if __name__ == "__main__":
    sys.exit(run_yaml_command("train_heads", run))
