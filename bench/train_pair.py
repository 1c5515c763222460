"""`python -m bench.train_pair`: trains the embedded pair from its own benchmarks (conf/train_pair.yaml)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from transformers import AutoTokenizer

from methods.training.pair.language_model import export, train
from methods.training.pair.recipe import Recipe
from methods.training.pair.tokenizer import save_tokenizer, train_tokenizer
from tasks.mini import EXERCISES, corpus


def conversation(example) -> list[tuple[str, str]]:
    """An example as (role, content) messages."""
    pairs = zip(example.turns, example.answers, strict=True)
    return [message for turn, answer in pairs for message in (("user", turn), ("assistant", answer))]


def stream(seed: int, mix: dict[str, float], step: int, exercises: float = 0.0) -> Iterator[list[tuple[str, str]]]:
    """The endless training conversations of one step: the benchmarks by `mix`, and a share of exercises."""
    digest = hashlib.blake2b(f"{seed}/{step}".encode(), digest_size=8).digest()
    total = sum(mix.values())
    weights = {name: (1 - exercises) * weight / total for name, weight in mix.items()}
    drawn = corpus(int.from_bytes(digest), weights | dict.fromkeys(EXERCISES, exercises))
    return (conversation(example) for _, example in drawn)


def make_tokenizer(config: DictConfig, folder: Path) -> None:
    source = islice(stream(config.seed, dict(config.mix), -1), config.tokenizer.examples)
    texts = (f" {content}" for messages in source for _, content in messages)
    save_tokenizer(train_tokenizer(texts, config.tokenizer.vocab_size), folder)


def make_model(config: DictConfig, name: str, out: Path, device: str) -> None:
    recipe = Recipe(**OmegaConf.to_container(config[name], resolve=True))
    tokenizer = AutoTokenizer.from_pretrained(Path(config.work) / "tokenizer")
    work = Path(config.work) / name
    model = train(recipe, tokenizer, partial(stream, config.seed, dict(config.mix)), work,
                  device=device, seed=config.seed, name=name)
    export(model, tokenizer, out / name)
    curve = [json.loads(line) for line in (work / "loss.jsonl").read_text().splitlines()]
    (out / name / "training.json").write_text(json.dumps({"recipe": recipe.model_dump(), "loss": curve}))


@hydra.main(version_base="1.3", config_path="../conf", config_name="train_pair")
def main(config: DictConfig) -> None:
    out, work = Path(config.out), Path(config.work)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(config.threads or os.cpu_count())
    for stage in config.stages:
        if stage == "tokenizer":
            done, make = work / "tokenizer" / "tokenizer.json", make_tokenizer
            if not done.exists():
                make(config, work / "tokenizer")
        elif not (out / stage / "model.safetensors").exists():
            make_model(config, stage, out, device)


if __name__ == "__main__":
    main()
