"""Matrix products on the CPU with weights in oneDNN's layout for a few tokens, as PyTorch's
compiler packs them.

A forward of 3 to 32 tokens, as a verification is, takes half to nine tenths of the time so, and a
longer one no more. A weight keeps its own layout beside the packed one, so a model takes twice its
memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional as F

mkldnn: Any = torch.ops.mkldnn
SMALLEST = 64 << 20
"""Bytes of the smallest model that is worth it: a forward of a smaller one finds its weights in the
caches."""
BATCH = 8
"""Tokens that oneDNN packs a weight for."""


class Matrix:
    """A packed weight."""

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, None if bias is None else bias.detach()
        self.packed = mkldnn._reorder_linear_weight(weight.detach().contiguous(), BATCH)

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, out]. A single token in float32 reads the plain weight: that is
        faster."""
        if len(x) == 1 and x.dtype == torch.float32:
            return F.linear(x, self.weight, self.bias)
        out: Tensor = mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether this processor and this PyTorch multiply packed weights of the type."""
    try:
        Matrix(torch.zeros(16, 16, dtype=dtype), None)(torch.zeros(2, 16, dtype=dtype))
    except (RuntimeError, AttributeError):
        return False
    return True


class Products:
    """The packed weights of one model and of the models that share weights with it.

    serves  whether weights are packed; if not, the plain product serves.
    """

    def __init__(self, serves: bool):
        self.serves = serves
        self._made: dict[tuple[Any, ...], Matrix] = {}

    @classmethod
    def of(cls, module: nn.Module, processes: int) -> Products:
        """For a model on the CPU that so many processes may hold. The plain product serves for one
        smaller than `SMALLEST`, where the copies of all do not fit half of the memory, and where
        nothing can be packed."""
        weights = list(module.parameters())
        size = sum(weight.nbytes for weight in weights)
        room = psutil.virtual_memory().total / 4 / processes
        return cls(
            SMALLEST <= size <= room and all(map(packs, {weight.dtype for weight in weights}))
        )

    def matrix(self, weight: Tensor, bias: Tensor | None) -> Matrix | None:
        """The weight [out, in], packed once, or None."""
        if not self.serves:
            return None
        key = weight.data_ptr(), weight.shape, weight.stride()
        if key not in self._made:
            self._made[key] = Matrix(weight, bias)
        return self._made[key]
