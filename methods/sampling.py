"""From raw logits to the processed distribution p, and from p to a token with a given uniform
number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import, and the settings of a command are checked before
    from torch import Tensor


HEAD = 1024
"""The most likely tokens of a large vocabulary, among which top-p mostly ends."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature (0 is greedy), then top-k, then top-p, then min-p: the order and the tie rules of
    transformers.

    min_p   tokens of less than this share of the largest probability are left out (Nguyen et al.
            2024, arXiv:2407.01082); 0 = none.
    repetition_penalty  what `penalised` weakens the logits of earlier tokens by (Keskar et al.
            2019, arXiv:1909.05858); 1 = nothing. It belongs to the model: all other methods of this
            class take logits to which it was applied."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def penalises(self) -> bool:
        return self.repetition_penalty != 1.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def penalised(self, logits: Tensor, earlier: Tensor) -> Tensor:
        """Logits [..., V] behind the tokens `earlier` [..., n], as transformers penalises them: a
        positive logit of a token among these is divided by the penalty, a negative one times it.
        Tokens may stand there several times."""
        at, penalty = logits.gather(-1, earlier), self.repetition_penalty
        return logits.scatter(-1, earlier, (at * penalty).where(at < 0, at / penalty))

    def process(self, logits: Tensor) -> Tensor:
        """Processed logits, same shape [..., V] float32; filtered tokens are -inf. Undefined for
        greedy decoding."""
        logits = logits / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            kth = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < kth, -math.inf)
        if self.top_p < 1.0:
            # on a GPU a sort does not wait
            by_head = logits.device.type == "cpu" and logits.shape[-1] > 2 * HEAD
            logits = logits.masked_fill(
                (_dropped_by_head if by_head else _dropped)(logits, self.top_p), -math.inf
            )
        if self.min_p > 0.0:
            # of tokens kept or not: the ratio is the same
            least = logits.amax(-1, keepdim=True) + math.log(self.min_p)
            logits = logits.masked_fill(logits < least, -math.inf)
        return logits

    def probs(self, logits: Tensor) -> Tensor:
        """Processed distribution p [..., V] float32; a point mass on the argmax when greedy."""
        if self.greedy:
            return logits.new_zeros(logits.shape).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return self.process(logits).softmax(-1)


def _dropped(logits: Tensor, top_p: float) -> Tensor:
    """bool [..., V]: the tokens outside top-p. In ascending order, those up to which there is a
    mass of 1 - top_p."""
    ordered, order = logits.sort(dim=-1)
    drop = ordered.softmax(-1).cumsum(-1) <= 1.0 - top_p
    drop[..., -1] = False
    return drop.scatter(-1, order, drop)


def _dropped_by_head(logits: Tensor, top_p: float) -> Tensor:
    """As `_dropped`, with the most likely tokens alone in order: the others are dropped together
    where they have a mass of at most 1 - top_p. Elsewhere all are ordered."""
    import torch

    rows = logits.reshape(-1, logits.shape[-1])
    ordered, order = rows.topk(HEAD, sorted=True)
    shares = (ordered - rows.logsumexp(-1, keepdim=True)).exp().flip(-1)
    rest = 1.0 - shares.sum(-1, keepdim=True)
    drop = shares.cumsum(-1) + rest <= 1.0 - top_p
    drop[:, -1] = False
    dropped = torch.ones_like(rows, dtype=torch.bool).scatter(-1, order.flip(-1), drop)
    if (wide := rest[:, 0] > 1.0 - top_p).any():
        dropped[wide] = _dropped(rows[wide], top_p)
    return dropped.view(logits.shape)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Inverse-CDF draw: `weights` [..., V] unnormalised and >= 0, `u` [...] in [0, 1) -> token ids
    [...] int64.

    Summed in float64, so that a token of weight zero is never drawn and large vocabularies stay
    exact. Weights that are NaN give some token, not an index beyond the vocabulary, which ends a
    process on a GPU."""
    import torch

    cdf = weights.double().cumsum(-1)
    place = torch.searchsorted(cdf, u.double()[..., None] * cdf[..., -1:], right=True)[..., 0]
    return place.clamp_(max=weights.shape[-1] - 1)
