"""Matrix products on the CPU with weights in oneDNN's layout for a few tokens, as PyTorch's
compiler packs them.

Where the table of the processor says so, a forward of a few tokens, as a verification is, takes
half to nine tenths of the time so. A weight keeps its own layout beside the packed one, so a model
takes up to twice its memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.processor import KERNELS, NEVER, Kernels

mkldnn: Any = torch.ops.mkldnn
SMALLEST = 64 << 20
"""Bytes of the smallest model that is worth it: a forward of a smaller one finds its weights in the
caches."""
BATCH = 8
"""Tokens that oneDNN packs a weight for."""


class Matrix:
    """A weight [out, in] with what multiplies it (`methods/engine/processor.py`).

    packed       its copy in oneDNN's layout, or None.
    packed_from, plain_from  tokens from which oneDNN multiplies the copy, or the weight itself.
    """

    @torch.inference_mode(False)
    @torch.no_grad()
    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        packs: bool = False,
        kernels: Kernels = KERNELS,
    ):
        """`packs`: a copy is made where `kernels` use one for a weight of this size."""
        self.weight, self.bias = weight, None if bias is None else bias.detach()
        self.transposed = weight.detach().t()
        self.packed: Tensor | None = None
        self.packed_from = self.plain_from = NEVER
        if weight.device.type != "cpu":
            return
        is_float32 = weight.dtype == torch.float32
        if is_float32 and torch.backends.mkldnn.is_available():
            self.plain_from = kernels.plain
        tokens = kernels.packed_from(weight.nbytes) if is_float32 else 1
        if packs and tokens < NEVER:
            self.packed_from = tokens
            self.packed = mkldnn._reorder_linear_weight(weight.detach().contiguous(), BATCH)

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, out], without gradients."""
        tokens = x.shape[0]
        if tokens < self.packed_from and tokens < self.plain_from:
            if self.bias is None:  # F.linear, in fewer calls
                return torch.mm(x, self.transposed)
            return F.linear(x, self.weight, self.bias)
        weight = self.packed if tokens >= self.packed_from else self.weight
        out: Tensor = mkldnn._linear_pointwise(x, weight, self.bias, "none", [], "")
        return out


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether this processor and this PyTorch multiply packed weights of the type."""
    try:
        everything = Kernels(1, ((0, 1),))
        Matrix(torch.zeros(16, 16, dtype=dtype), None, True, everything)(
            torch.zeros(2, 16, dtype=dtype)
        )
    except (RuntimeError, AttributeError):
        return False
    return True


class Products:
    """The packed weights of one model and of the models that share weights with it.

    serves  whether weights are packed where that pays; if not, none is.
    """

    def __init__(self, serves: bool, kernels: Kernels = KERNELS):
        self.serves, self.kernels = serves, kernels
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

    def matrix(self, weight: Tensor, bias: Tensor | None) -> Matrix:
        """The weight [out, in], packed at most once."""
        key = weight.data_ptr(), weight.shape, weight.stride()
        if key not in self._made:
            self._made[key] = Matrix(weight, bias, self.serves, self.kernels)
        return self._made[key]
