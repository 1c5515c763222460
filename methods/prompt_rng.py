"""Random numbers that depend on the prompt alone, not on batch, order, worker or restarts."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor

from methods.engine.device import send

BLOCK = 16
"""Cycles drawn at once; a matter of speed, not of values."""


class PromptRng:
    """One counter-based generator (Philox) per row, keyed by the row's name; `width` uniforms a row
    and cycle."""

    def __init__(self, keys: list[str], width: int, device: torch.device):
        self.width, self.device = width, device
        self.rows = [
            np.random.Generator(
                np.random.Philox(
                    key=int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest())
                )
            )
            for key in keys
        ]
        self.block: Tensor | None = None
        self.used = BLOCK

    def keep(self, places: list[int]) -> None:
        """Only the rows at these places go on."""
        self.rows = [self.rows[place] for place in places]
        if self.block is not None:
            self.block = self.block[places]

    def cycle(self) -> Tensor:
        """[B, width] float32 uniforms in [0, 1) of the next cycle."""
        if self.block is None or self.used == BLOCK:
            drawn = np.stack(
                [row.random((BLOCK, self.width), dtype=np.float32) for row in self.rows]
            )
            self.block, self.used = send(torch.from_numpy(drawn), self.device), 0
        self.used += 1
        return self.block[:, self.used - 1]
