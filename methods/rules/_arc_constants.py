"""The constants of ARC-Decode's bounds, measured on one target by `python -m bench.train calibrate`; their file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from methods.rules._files import read_json

EPSILON = 1e-10
"""Probabilities are clamped from below at this before their logarithm is taken."""
VACUOUS = math.log(2.0)
"""Nats; no Jensen-Shannon divergence is larger."""


class Bucket(BaseModel):
    """Constants for contexts of similar entropy.

    c            factor of the embedding distance in U_emb (eq. 10).
    alpha_kappa  factor of the squared log margin in U_logit (eq. 13).
    tau          tolerated divergence, nats (eq. 15).
    n            positions measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    c: float = Field(ge=0)
    alpha_kappa: float = Field(ge=0)
    tau: float = Field(ge=0)
    n: int = Field(ge=1)


class Constants(BaseModel):
    """The file that `bench.train calibrate` writes.

    target       the model they were measured on.
    fingerprint  its weights' fingerprint; constants of another model are refused.
    inv_std      [H] diagonal of W.
    edges        entropies that separate the buckets, ascending.
    buckets      one more than edges.
    provenance   how they were measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    target: str
    fingerprint: str
    inv_std: list[float]
    edges: list[float] = []
    buckets: list[Bucket] = Field(min_length=1)
    provenance: dict[str, Any] = {}

    @property
    def vacuous(self) -> bool:
        """Some bucket tolerates every divergence."""
        return any(bucket.tau >= VACUOUS for bucket in self.buckets)

    @classmethod
    def read(cls, path: Path) -> Constants:
        """Raises ValueError, one line."""
        constants = read_json(cls, path, "constants of bench.train calibrate")
        if len(constants.buckets) != len(constants.edges) + 1:
            raise ValueError(f"{path}: {len(constants.edges)} edges cannot separate {len(constants.buckets)} buckets; "
                             "write the file again with `python -m bench.train calibrate`")
        return constants


def entropy(p: Tensor) -> Tensor:
    """Entropy over ln V of distributions [..., V] -> [...] in [0, 1]."""
    nats: Tensor = torch.special.entr(p).sum(-1)
    return nats / math.log(p.shape[-1])
