"""Train one drafter head on a frozen target, resumable at any update; then measure it on held-out conversations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from methods.engine.source import ModelError
from methods.training.heads.base import HeadTrainer, choose
from methods.training.packing import Packer, Stream
from methods.training.run import Optimiser, RunFiles, progress_bar

RANKS = 10
"""Ranks counted separately when a head is measured."""


@dataclass(frozen=True, slots=True)
class ConversationSource:
    """Conversations to learn from. Both streams depend on their arguments alone.

    train     those to train on.
    held_out  those to measure on; a negative step gives each once before any repeats.
    """

    train: Stream
    held_out: Stream


def head_optimiser(trainer: HeadTrainer[Any, Any]) -> Optimiser:
    """Muon (or AdamW, as the recipe says) for the head's matrices; AdamW for the vocabulary's, biases and norms."""
    recipe = trainer.recipe
    trained = [p for p in trainer.head.parameters() if p.requires_grad]
    vocabulary = {id(p) for p in trainer.vocabulary_parameters()}
    matrices = [p for p in trained if p.ndim == 2 and id(p) not in vocabulary]
    ids = {id(p) for p in matrices}
    rest = [p for p in trained if id(p) not in ids]
    parts: list[tuple[torch.optim.Optimizer, float]] = []
    if matrices and recipe.optimiser == "muon":
        muon = torch.optim.Muon(matrices, lr=recipe.lr, momentum=0.95, weight_decay=0.01, ns_steps=3)
        parts.append((muon, recipe.lr))
    elif matrices:
        parts.append((_adamw(matrices, recipe.lr), recipe.lr))
    return Optimiser([*parts, (_adamw(rest, recipe.adam_lr), recipe.adam_lr)])


def _adamw(parameters: list[Tensor], lr: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


class _Run:
    """The mutable state of a training run: head, optimiser and updates done."""

    def __init__(self, trainer: HeadTrainer[Any, Any], work: Path, device: str, identity: str) -> None:
        self.trainer, self.files, self.update = trainer, RunFiles(work), 0
        self.identity = {"data": identity, "target": trainer.frozen_target.target.fingerprint,
                         "recipe": trainer.recipe.model_dump_json()}
        self.optimiser = head_optimiser(trainer)
        state = self.files.load(device)
        self.resumed = state is not None
        if state is not None:
            self._restore(state)
        self.files.drop_after(self.update)

    def _restore(self, state: dict[str, Any]) -> None:
        if other := [key for key, value in self.identity.items() if state["identity"][key] != value]:
            raise ModelError(f"{self.files.work}: holds a training run with different {' and '.join(other)}; remove "
                             "that folder to start over, or give another one with work=DIR")
        self.trainer.head.load_state_dict(state["head"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.update = state["update"]

    def save(self) -> None:
        self.files.save({"update": self.update, "identity": self.identity,
                         "head": self.trainer.head.state_dict(), "optimiser": self.optimiser.state_dict()})

    def log(self, loss: float, agreement: list[float]) -> None:
        tokens = self.update * self.trainer.recipe.rows * self.trainer.recipe.row_tokens
        self.files.log({"step": self.update, "tokens": tokens, "loss": round(loss, 4),
                        "agreement": [round(a, 4) for a in agreement]})


def _noise(seed: int, update: int) -> torch.Generator:
    """The random numbers of one update, a function of both arguments: a resumed run draws the same."""
    return torch.Generator().manual_seed(seed * 1_000_003 + update)


def _agreement(ranks: Tensor, weight: Tensor) -> list[float]:
    """For each step, the share of slots where the head's most likely token is the target's."""
    shares: list[float] = (((ranks == 0) * weight).sum((1, 2)) / weight.sum((1, 2)).clamp(min=1e-6)).tolist()
    return shares


def train(trainer: HeadTrainer[Any, Any], packer: Packer, work: Path, *, device: str, seed: int, name: str,
          identity: str, autocast: bool = False) -> None:
    """Train `trainer.head`, or resume its training from `work`; batch, slots and noise depend on (seed, update) alone.

    `identity` identifies the data; `autocast`: matrix products in bfloat16. Raises ModelError where
    `work` holds another run."""
    recipe = trainer.recipe
    run = _Run(trainer, work, device, identity)
    if not run.resumed:
        trainer.prepare(lambda number: packer.batch(number, recipe.rows))
    parameters = [p for p in trainer.head.parameters() if p.requires_grad]
    trainer.head.train()
    with progress_bar(name) as progress:
        bar = progress.add_task("", total=recipe.updates, completed=run.update)
        while run.update < recipe.updates:
            batch = packer.batch(run.update, recipe.rows).to(device)
            noise = _noise(seed, run.update)
            slots = choose(batch, recipe.steps, recipe.slots, noise)
            with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast):
                states = trainer.frozen_target.states(batch, trainer.layers)
                loss, ranks = trainer.objective(batch, states, slots, noise)
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
def measure(trainer: HeadTrainer[Any, Any], packer: Packer, *, device: str, seed: int,
            batches: int, autocast: bool = False) -> list[list[float]]:
    """[S][RANKS]: the share of held-out slots where the target's most likely token is the head's r-th choice at draft
    step k, all earlier drafts being right. Each row's first entry is the acceptance rate of a greedy draft."""
    recipe = trainer.recipe
    counts = torch.zeros(recipe.steps, RANKS)
    total = torch.zeros(recipe.steps)
    for number in range(batches):
        batch = packer.batch(number, recipe.rows).to(device)
        noise = _noise(seed, number)
        slots = choose(batch, recipe.steps, recipe.row_tokens, noise)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast):
            _, ranks = trainer.objective(batch, trainer.frozen_target.states(batch, trainer.layers), slots, noise)
        for rank in range(RANKS):
            counts[:, rank] += ((ranks == rank) * slots.weight).sum((1, 2)).cpu()
        total += slots.weight.sum((1, 2)).cpu()
    shares: list[list[float]] = (counts / total.clamp(min=1e-6)[:, None]).tolist()
    return shares
