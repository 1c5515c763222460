"""From raw logits to the processed distribution p, and from p to a token with a given uniform number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import, and the settings of a command are checked before
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature (0 is greedy), then top-k, then top-p: the order and the tie rules of the field's libraries."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def process(self, logits: Tensor) -> Tensor:
        """Processed logits, same shape [..., V] float32; filtered tokens are -inf. Undefined for greedy decoding."""
        logits = logits / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            kth = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < kth, -math.inf)
        if self.top_p < 1.0:
            ordered, order = logits.sort(dim=-1, descending=False)
            drop = ordered.softmax(-1).cumsum(-1) <= 1.0 - self.top_p
            drop[..., -1] = False
            logits = logits.masked_fill(drop.scatter(-1, order, drop), -math.inf)
        return logits

    def probs(self, logits: Tensor) -> Tensor:
        """Processed distribution p [..., V] float32; a point mass on the argmax when greedy."""
        if self.greedy:
            return logits.new_zeros(logits.shape).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return self.process(logits).softmax(-1)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Inverse-CDF draw: `weights` [..., V] unnormalised and >= 0, `u` [...] in [0, 1) -> token ids [...] int64.

    Summed in float64, so that a token of weight zero is never drawn and large vocabularies stay exact."""
    import torch

    cdf = weights.double().cumsum(-1)
    return torch.searchsorted(cdf, u.double()[..., None] * cdf[..., -1:], right=True)[..., 0]
