"""How near autoregressive decoding comes to the speed that the memory allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.store.sample import Sample

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a machine allows a model.

    bandwidth  bytes/s of a copy
    compute    tokens/s if the matrix products of the weights ran at the speed of a large one
    weights    bytes of the weights that a forward reads
    cached     bytes that a forward reads of the cache of each row
    """

    bandwidth: float
    compute: float
    weights: float
    cached: float

    def tokens_per_s(self, tokens: Floats, rows: Floats) -> Floats:
        """The most for forwards of `tokens` tokens in `rows` rows: the lower of the two limits."""
        return np.minimum(tokens * self.bandwidth / (self.weights + rows * self.cached), self.compute)


def roofline(samples: Sequence[Sample], tokens_per_s: float | None, reads: Mapping[str, float] | None) -> float | None:
    """Share of the copy bandwidth that the bytes of a token reach: (weights / rows + entry * context) * tokens_per_s
    / bandwidth. None without a clock or without `reads`.

    samples       the answers of the baseline; the context is the mean over their tokens
    tokens_per_s  of the baseline, over all rows of a batch
    reads         bytes of the weights and of the cache's entry for one token, rows of a batch, bytes/s of a copy"""
    tokens = sum(len(sample.output_ids) for sample in samples)
    if reads is None or tokens_per_s is None or not tokens:
        return None
    context = sum(len(sample.output_ids) * _context(sample) for sample in samples) / tokens
    return (reads["weights"] / reads["rows"] + reads["entry"] * context) * tokens_per_s / reads["bandwidth"]


def _context(sample: Sample) -> float:
    """Tokens in the cache in the middle of an answer, mean over the turns."""
    return (sample.prompt_tokens + len(sample.output_ids) / 2) / max(1, len(sample.turn_tokens))
