"""`python -m models.train heads`: train drafter heads for a target, in the official formats
(conf/train_heads.yaml)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from bench.config.section import Section, check_known, parse
from methods.engine.loading import load_model
from methods.engine.source import DType
from models.train.heads.base import FrozenTarget, HeadRecipe
from models.train.heads.loop import measure, train
from models.train.heads.trainers import RECIPES, TRAINERS
from models.train.packing import ConversationSource, Packer, Records, load_records
from results.store.errors import redacted_plain
from results.store.files import check_writable

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

EMBEDDED = "embedded"


class TrainHeads(Section):
    """conf/train_heads.yaml without the heads' own sections; the file explains every field."""

    target: str
    target_revision: str | None
    out: Path
    work: Path
    seed: int
    threads: NonNegativeInt
    device: str | None
    dtype: DType
    heads: list[str] = Field(min_length=1)
    data: str
    split: str
    mix: dict[str, float]
    measure: PositiveInt
    autocast: bool | None


def identity(settings: TrainHeads) -> str:
    """What the conversations depend on besides the target."""
    part = settings.mix if settings.data == EMBEDDED else settings.split
    return json.dumps([settings.data, part, settings.seed])


def source_of(settings: TrainHeads) -> ConversationSource:
    """The conversations to train and measure on. Raises ValueError, DataError, TaskError."""
    if settings.data == EMBEDDED:
        from models.train.pair.data import embedded  # the embedded pair's own texts

        return embedded(settings.seed, settings.mix)
    records = Records(load_records(settings.data, settings.split), settings.data, settings.seed)
    return ConversationSource(records.train, records.held_out)


def make_head(
    name: str,
    recipe: HeadRecipe,
    target: LanguageModel,
    source: ConversationSource,
    settings: TrainHeads,
) -> None:
    """Train, measure and export one head, unless its folder is complete. Raises ValueError for
    another target's."""
    out, work = settings.out / name, settings.work / name
    if (out / "training.json").exists():
        trained = json.loads((out / "training.json").read_text())["target"]
        if trained != target.fingerprint:
            raise ValueError(
                f"{out}: holds a head of another target ({trained}, not {target.fingerprint}); "
                "remove it, or give another out=DIR"
            )
        print(f"{out}: complete")
        return
    torch.manual_seed(settings.seed)
    trainer = TRAINERS[name](recipe, FrozenTarget(target))
    tokenizer: Any = target.tokenizer
    packer = partial(Packer, tokenizer, length=recipe.row_tokens, eos_ids=target.eos_ids)
    device = str(target.device)
    autocast = device != "cpu" if settings.autocast is None else settings.autocast
    train(
        trainer,
        packer(source.train),
        work,
        device=device,
        seed=settings.seed,
        name=name,
        identity=identity(settings),
        autocast=autocast,
    )
    ranks = measure(
        trainer,
        packer(source.held_out),
        device=device,
        seed=settings.seed,
        batches=settings.measure,
        autocast=autocast,
    )
    print(describe(name, ranks))
    trainer.export(out)
    losses = [json.loads(line) for line in (work / "loss.jsonl").read_text().splitlines()]
    file = Path(settings.data)
    record = {
        "target": target.fingerprint,
        "recipe": recipe.model_dump(),
        "data": file.name if file.is_file() else settings.data,
        "seed": settings.seed,
        "parameters": sum(p.numel() for p in trainer.head.parameters() if p.requires_grad),
        "rank_share": [[round(share, 5) for share in step] for step in ranks],
        "loss": losses,
    }
    (out / "training.json").write_text(json.dumps(redacted_plain(record)) + "\n", encoding="utf-8")


def describe(name: str, ranks: list[list[float]]) -> str:
    """Held-out agreement with the target, one line a draft step."""
    lines = [
        f"{name}: held-out agreement with the target's most likely token, all earlier drafts "
        "being right"
    ]
    for k, shares in enumerate(ranks, start=1):
        lines.append(f"  draft token {k}: top-1 {shares[0]:6.1%}   top-5 {sum(shares[:5]):6.1%}")
    return "\n".join(lines)


def parsed(config: Mapping[str, Any]) -> tuple[TrainHeads, dict[str, HeadRecipe]]:
    """The settings and each requested head's recipe. Raises ValueError, one line."""
    settings = parse(
        TrainHeads, {key: value for key, value in config.items() if key not in RECIPES}, ""
    )
    for name in settings.heads:
        check_known("heads", name, RECIPES)
    return settings, {name: parse(RECIPES[name], config, name) for name in settings.heads}


def run(config: Mapping[str, Any]) -> None:
    """Train the requested heads. Raises ValueError, DataError, ModelError, TaskError."""
    settings, recipes = parsed(config)
    check_writable(settings.out, "out")
    check_writable(settings.work, "work")
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    target = load_model(
        settings.target,
        dtype=settings.dtype,
        revision=settings.target_revision,
        device=settings.device or ("cuda" if torch.cuda.is_available() else "cpu"),
    )
    source = source_of(settings)
    for name, recipe in recipes.items():
        make_head(name, recipe, target, source, settings)
