"""Where a drafter head is trained: the slots of a batch, and the entries k tokens after each of them.

A slot is a position t whose feature f_t and next token x_{t+1} are known, as after a verification: f_t is the target's
state, x_{t+1} the root. Draft step k (from 0) at slot t predicts x_{t+2+k}; the target's own distribution of that token
comes from its hidden state at t+1+k. The same holds for EAGLE, EAGLE-3 and Medusa."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.training.packing import Batch


def take(x: Tensor, index: Tensor) -> Tensor:
    """x [R, T, D] or [R, T] at index [R, M] -> [R, M, D] or [R, M]."""
    return x.gather(1, index if x.ndim == 2 else index[..., None].expand(-1, -1, x.shape[-1]))


@dataclass(slots=True)
class Slots:
    """The slots of a batch.

    index   [R, M] int64 positions t.
    weight  [S, R, M] float32, the loss weight of step k at each slot (0: unused).
    """

    index: Tensor
    weight: Tensor

    def after(self, x: Tensor, ahead: int) -> Tensor:
        """x [R, T, …] at t + `ahead`; beyond the row's end, its last entry (such slots weigh 0)."""
        return take(x, (self.index + ahead).clamp(max=x.shape[1] - 1))


def choose(batch: Batch, steps: int, most: int, generator: torch.Generator) -> Slots:
    """At most `most` slots a row, drawn among those whose root and first draft token are answer tokens.

    Later steps depend only on the true features before a slot and on the slot itself, so training on a subset of slots
    is exact for these, and the unrolled steps cost M instead of T."""
    rows, length = batch.input_ids.shape
    weight = torch.zeros(steps, rows, length, device=batch.weight.device)
    for k in range(steps):
        ahead = k + 2
        if ahead < length:
            same = batch.document[:, ahead:] == batch.document[:, :-ahead]
            weight[k, :, :-ahead] = batch.weight[:, ahead:] * same
    answered = torch.zeros_like(weight[0], dtype=torch.bool)
    answered[:, :-1] = batch.weight[:, 1:] > 0
    weight = weight * (answered & (weight[0] > 0))
    lottery = torch.rand(rows, length, generator=generator).to(weight.device) + (weight[0] > 0)
    index = lottery.topk(min(most, length), dim=1).indices.sort(1).values
    return Slots(index, torch.stack([w.gather(1, index) for w in weight]))
