"""Train one drafter head on a frozen target: resumable at any update, then measured on conversations held out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from methods.engine.source import ModelError
from methods.training.heads.base import HeadRecipe, HeadTrainer
from methods.training.heads.slots import choose
from methods.training.muon import Muon
from methods.training.packing import Batch, Packer
from methods.training.pair.language_model import Optimiser

RANKS = 10
"""Ranks that are told apart when a head is measured."""


class HeadOptimiser(Optimiser):
    """Muon for the head's matrices (or AdamW for all), AdamW for what has an entry a token, biases and norms."""

    def __init__(self, trainer: HeadTrainer):
        recipe = trainer.recipe
        trained = [p for p in trainer.head.parameters() if p.requires_grad]
        vocabulary = {id(p) for p in trainer.vocabulary_parameters()}
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in vocabulary]
        ids = {id(p) for p in matrices}
        rest = [p for p in trained if id(p) not in ids]
        adam = {"betas": (0.9, 0.95), "weight_decay": 0.0}
        self.parts, self.base = [], []
        if matrices:
            self.parts.append(Muon(matrices, lr=recipe.lr, momentum=0.95, weight_decay=0.01, ns_steps=3)
                              if recipe.optimiser == "muon" else torch.optim.AdamW(matrices, lr=recipe.lr, **adam))
            self.base.append(recipe.lr)
        self.parts.append(torch.optim.AdamW(rest, lr=recipe.adam_lr, **adam))
        self.base.append(recipe.adam_lr)


@dataclass(frozen=True, slots=True)
class Source:
    """Conversations to learn from: both are functions (step, exercises) of their arguments alone."""

    train: Callable
    held_out: Callable


class _Run:
    """The mutable state of a training run and its files: `work`/state.pt, `work`/loss.jsonl."""

    def __init__(self, trainer: HeadTrainer, work: Path, device: str, identity: str):
        self.trainer, self.work = trainer, work
        self.identity = {"data": identity, "target": trainer.frozen_target.target.fingerprint,
                         "recipe": trainer.recipe.model_dump_json()}
        self.update = 0
        self.optimiser = HeadOptimiser(trainer)
        self.resumed = (work / "state.pt").exists()
        work.mkdir(parents=True, exist_ok=True)
        if self.resumed:
            self._load(device)
        log = work / "loss.jsonl"
        if log.exists():  # what a killed run had reached beyond its last checkpoint is done again
            kept = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= self.update]
            log.write_text("".join(f"{line}\n" for line in kept))

    def _load(self, device: str) -> None:
        state = torch.load(self.work / "state.pt", map_location=device, weights_only=True)
        if other := [key for key, value in self.identity.items() if state["identity"][key] != value]:
            raise ModelError(f"{self.work}: holds a training with another {' and '.join(other)}; remove that folder to "
                             "begin anew, or give another one with work=DIR")
        self.trainer.head.load_state_dict(state["head"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.update = state["update"]

    def save(self) -> None:
        state = {"update": self.update, "identity": self.identity,
                 "head": self.trainer.head.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, self.work / "state.tmp")
        os.replace(self.work / "state.tmp", self.work / "state.pt")

    def log(self, loss: float, agreement: list[float]) -> None:
        tokens = self.update * self.trainer.recipe.rows * self.trainer.recipe.row_tokens
        with (self.work / "loss.jsonl").open("a") as f:
            f.write(json.dumps({"step": self.update, "tokens": tokens, "loss": round(loss, 4),
                                "agreement": [round(a, 4) for a in agreement]}) + "\n")


def _noise(seed: int, update: int) -> torch.Generator:
    """The random numbers of one update: a function of both, so that a resumed run draws the same."""
    return torch.Generator().manual_seed(seed * 1_000_003 + update)


def _on(batch: Batch, device: str) -> Batch:
    return Batch(*(getattr(batch, f).to(device) for f in Batch.__slots__))


def _agreement(ranks: Tensor, weight: Tensor) -> list[float]:
    """The share of slots, a step, where the head's most likely token is the target's."""
    return (((ranks == 0) * weight).sum((1, 2)) / weight.sum((1, 2)).clamp(min=1e-6)).tolist()


def train(trainer: HeadTrainer, packer: Packer, work: Path, *, device: str, seed: int, name: str,
          identity: str) -> None:
    """Train (or go on training) `trainer.head`; batch, slots and noise are functions of (seed, update).

    identity: of the data; `work` holds one run. Raises ModelError when it holds another one."""
    recipe: HeadRecipe = trainer.recipe
    run = _Run(trainer, work, device, identity)
    if not run.resumed:
        trainer.prepare(lambda number: packer.batch(number, recipe.rows))
    parameters = [p for p in trainer.head.parameters() if p.requires_grad]
    compiler = device != "cpu" or shutil.which("g++")
    objective = torch.compile(trainer.objective) if recipe.compile and compiler else trainer.objective
    trainer.head.train()
    columns = (TextColumn(f"{name} {{task.description}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=recipe.updates, completed=run.update)
        while run.update < recipe.updates:
            batch = _on(packer.batch(run.update, recipe.rows), device)
            noise = _noise(seed, run.update)
            slots = choose(batch, recipe.steps, recipe.slots, noise)
            with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
                loss, ranks = objective(batch, trainer.frozen_target.states(batch, trainer.layers), slots, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, recipe.clip)
            run.optimiser.step(recipe.rate(run.update))
            run.update += 1
            if run.update % 10 == 0 or run.update == recipe.updates:
                agreement = _agreement(ranks, slots.weight)
                run.log(loss.item(), agreement)
                shown = " ".join(f"{a:.2f}" for a in agreement)
                progress.update(bar, completed=run.update, description=f"loss {loss.item():.3f} agreement {shown}")
            if run.update % recipe.save_every == 0 or run.update == recipe.updates:
                run.save()
    trainer.head.eval()


@torch.no_grad()
def measure(trainer: HeadTrainer, packer: Packer, *, device: str, seed: int, batches: int) -> list[list[float]]:
    """[S][RANKS]: the share of held-out slots where the target's most likely token is the head's r-th choice at draft
    step k, all earlier drafts being right. Their first entry is the chance that a greedy draft is accepted."""
    recipe = trainer.recipe
    counts = torch.zeros(recipe.steps, RANKS)
    total = torch.zeros(recipe.steps)
    for number in range(batches):
        batch = _on(packer.batch(number, recipe.rows), device)
        noise = _noise(seed, number)
        slots = choose(batch, recipe.steps, recipe.row_tokens, noise)
        with torch.autocast("cuda", torch.bfloat16, enabled=device != "cpu"):
            _, ranks = trainer.objective(batch, trainer.frozen_target.states(batch, trainer.layers), slots, noise)
        for rank in range(RANKS):
            counts[:, rank] += ((ranks == rank) * slots.weight).sum((1, 2)).cpu()
        total += slots.weight.sum((1, 2)).cpu()
    return (counts / total.clamp(min=1e-6)[:, None]).tolist()
