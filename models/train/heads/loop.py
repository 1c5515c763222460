"""Train one drafter head on a frozen target, resumable at any update; then measure it on held-out
conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from methods.engine.source import ModelError
from models.train.heads.base import HeadTrainer, Slots, choose
from models.train.packing import Packer
from models.train.training_run import TrainingRun

RANKS = 10
"""Ranks counted separately when a head is measured."""


class _HeadRun(TrainingRun):
    """`trainer.head` in training. Raises ModelError where `work` holds another run."""

    def __init__(
        self,
        trainer: HeadTrainer[Any, Any],
        packer: Packer,
        work: Path,
        device: str,
        seed: int,
        identity: str,
        autocast: bool,
    ) -> None:
        recipe = trainer.recipe
        super().__init__(work, recipe.updates, recipe.rate, recipe.save_every, recipe.clip)
        self.module, self.trainer, self.packer = trainer.head, trainer, packer
        self.device, self.seed, self.autocast = device, seed, autocast
        self.identity = {
            "data": identity,
            "target": trainer.frozen_target.target.fingerprint,
            "recipe": recipe.model_dump_json(),
        }
        state = self.checkpoint(device)
        if state is None:
            trainer.prepare(lambda number: packer.batch(number, recipe.rows))
        elif other := [
            key for key, value in self.identity.items() if state["identity"][key] != value
        ]:
            raise ModelError(
                f"{work}: holds a training run with different {' and '.join(other)}; remove that "
                "folder to start over, or give another one with work=DIR"
            )
        self.optimise(
            trainer.vocabulary_parameters(),
            recipe.lr,
            recipe.adam_lr,
            0.95,
            recipe.optimiser == "muon",
        )
        self.restore(state)

    def loss(self, update: int) -> tuple[Tensor, dict[str, Any]]:
        recipe = self.trainer.recipe
        slots, loss, ranks = _unrolled(
            self.trainer, self.packer, update, recipe.slots, self.device, self.seed, self.autocast
        )
        agreement = ((ranks == 0) * slots.weight).sum((1, 2)) / slots.weight.sum((1, 2)).clamp(
            min=1e-6
        )
        return loss, {
            "tokens": (update + 1) * recipe.rows * recipe.row_tokens,
            "agreement": [round(share, 4) for share in agreement.tolist()],
        }

    def further_state(self) -> dict[str, Any]:
        return {"identity": self.identity}


def _unrolled(
    trainer: HeadTrainer[Any, Any],
    packer: Packer,
    number: int,
    most: int,
    device: str,
    seed: int,
    autocast: bool,
) -> tuple[Slots, Tensor, Tensor]:
    """At most `most` slots a row of batch `number`, the objective [] and the ranks [S, R, M] there;
    the noise is a function of seed and number, so that a resumed run draws the same."""
    batch = packer.batch(number, trainer.recipe.rows).to(device)
    noise = torch.Generator().manual_seed(seed * 1_000_003 + number)
    slots = choose(batch, trainer.recipe.steps, most, noise)
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=autocast):
        return slots, *trainer.objective(
            batch, trainer.frozen_target.states(batch, trainer.layers), slots, noise
        )


def train(
    trainer: HeadTrainer[Any, Any],
    packer: Packer,
    work: Path,
    *,
    device: str,
    seed: int,
    name: str,
    identity: str,
    autocast: bool = False,
) -> None:
    """Train `trainer.head`, or resume its training from `work`; batch, slots and noise depend on
    (seed, update) alone.

    `identity` identifies the data; `autocast`: matrix products in bfloat16. Raises ModelError where
    `work` holds another run."""
    run = _HeadRun(trainer, packer, work, device, seed, identity, autocast)
    trainer.head.train()
    run.train(name)
    trainer.head.eval()


@torch.no_grad()
def measure(
    trainer: HeadTrainer[Any, Any],
    packer: Packer,
    *,
    device: str,
    seed: int,
    batches: int,
    autocast: bool = False,
) -> list[list[float]]:
    """[S][RANKS]: the share of held-out slots where the target's most likely token is the head's
    r-th choice at draft step k, all earlier drafts being right. Each row's first entry is the
    acceptance rate of a greedy draft."""
    recipe = trainer.recipe
    counts = torch.zeros(recipe.steps, RANKS)
    total = torch.zeros(recipe.steps)
    for number in range(batches):
        slots, _, ranks = _unrolled(
            trainer, packer, number, recipe.row_tokens, device, seed, autocast
        )
        for rank in range(RANKS):
            counts[:, rank] += ((ranks == rank) * slots.weight).sum((1, 2)).cpu()
        total += slots.weight.sum((1, 2)).cpu()
    shares: list[list[float]] = (counts / total.clamp(min=1e-6)[:, None]).tolist()
    return shares
