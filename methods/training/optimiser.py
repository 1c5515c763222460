"""The optimisers of a training run, stepped together: Muon for matrices, AdamW for the other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer


class Optimiser:
    """Several optimisers with one learning-rate factor. `parts`: each with its base learning rate."""

    def __init__(self, parts: Sequence[tuple[Optimizer, float]]) -> None:
        self.parts = list(parts)

    def step(self, rate: float) -> None:
        """Update at `rate` times the base learning rates and clear the gradients."""
        for part, base in self.parts:
            for group in part.param_groups:
                group["lr"] = base * rate
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        """One state a part."""
        return [part.state_dict() for part, _ in self.parts]

    def load_state_dict(self, states: Sequence[dict[str, Any]]) -> None:
        """Restore what `state_dict` returned."""
        for (part, _), state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)
