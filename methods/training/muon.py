"""Muon (Jordan et al. 2024): momentum whose updates are replaced by the nearest semi-orthogonal matrices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration; they drive every singular value towards 1 in few steps."""


def orthogonalise(update: Tensor, steps: int) -> Tensor:
    """[N, R, C] -> [N, R, C]: the same singular vectors with singular values near 1, in the dtype given."""
    a, b, c = _COEFFICIENTS
    tall = update.shape[-2] > update.shape[-1]
    x = update.mT if tall else update
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """The update of `torch.optim.Muon` in the parameters' own precision, with matrices of one shape batched.

    `params` are 2-D; updates are scaled by `lr` × sqrt(max(1, rows / columns)), torch's "original" adjustment. torch's
    optimiser orthogonalises in bfloat16, one matrix at a time: on a CPU without bfloat16 units this alone took 38% of
    a training step of the embedded pair."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0,
                 ns_steps: int = 5) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "ns_steps": ns_steps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # takes no closure
        """One update from the parameters' gradients."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for shape, params in shapes.items():
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                nesterov = []
                for p in params:
                    assert p.grad is not None  # as selected above
                    buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                    buffer.lerp_(p.grad, 1 - group["momentum"])
                    nesterov.append(p.grad.lerp(buffer, group["momentum"]))
                for p, update in zip(params, orthogonalise(torch.stack(nesterov), group["ns_steps"]), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * scale)
