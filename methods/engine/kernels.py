"""PyTorch's kernels for the product of a few tokens with a weight, and a weight with those that were chosen for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

TOKENS = (1, 2, 4, 8, 12, 16, 24, 32)
"""The numbers of tokens that are measured. Others take the kernel of the next larger one, more than the last its."""

Kernel = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x [T, in], a weight in the kernel's layout, bias [out] or None -> [T, out]."""


class Choice(NamedTuple):
    """The layout of the copy, None for none, and the kernel for each of `TOKENS`."""

    layout: str | None
    kernels: tuple[str, ...]

    @classmethod
    def read(cls, value: Any) -> Choice:
        """From the user's cache. Raises KeyError, TypeError, ValueError for what is not a choice."""
        found = cls(value["layout"], tuple(value["kernels"]))
        if len(found.kernels) != len(TOKENS) or not {*found.kernels} <= {*OWN, found.layout} or (
                found.layout is not None and found.layout not in LAYOUTS):
            raise ValueError("not a choice of kernels")
        return found

    def shown(self) -> str:
        """`onednn to 1 token, packed 8 to 4, …`."""
        ends = [(tokens, kernel) for (tokens, kernel), after in
                zip(zip(TOKENS, self.kernels, strict=True), (*self.kernels[1:], None), strict=True) if kernel != after]
        return ", ".join(f"{kernel} to {tokens}" for tokens, kernel in ends)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of oneDNN, which PyTorch's compiler calls."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product as a convolution with a kernel of one pixel over an image of T pixels; nothing is copied."""
    tokens, inputs = x.shape
    image = x.contiguous().view(1, tokens, 1, inputs).permute(0, 3, 1, 2)
    out: Tensor = torch.ops.mkldnn._convolution_pointwise(image, weight, bias, [0, 0], [1, 1], [1, 1], 1,
                                                          "none", [], "")
    return out.permute(0, 2, 3, 1).reshape(tokens, -1)


def _packed(weight: Tensor, tokens: int) -> Tensor:
    out: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), tokens)
    return out


def _pixels(weight: Tensor) -> Tensor:
    outputs, inputs = weight.shape
    image = weight.contiguous().view(outputs, inputs, 1, 1)
    out: Tensor = torch.ops.mkldnn._reorder_convolution_weight(image, [0, 0], [1, 1], [1, 1], 1, [1, inputs, 16, 1])
    return out


OWN: Mapping[str, Kernel] = {"linear": F.linear, "onednn": onednn}
"""Kernels on a weight as it is."""
LAYOUTS: Mapping[str, tuple[Callable[[Tensor], Tensor], Kernel]] = {
    **{f"packed {tokens}": (partial(_packed, tokens=tokens), onednn) for tokens in (4, 8, 32)},
    "convolution": (_pixels, convolution),
}
"""Layouts of a copy: what makes it, and the kernel that reads it. A packed weight has the layout that oneDNN prefers
for so many tokens. That of a convolution suits some numbers of tokens only, and is converted anew, at a hundred times
the cost, for the others: its tokens are filled up to the next number that was measured."""
FILLED = 4
"""Tokens of the smallest image: one or two would want a layout of their own."""
NEEDED = ("_linear_pointwise", "_reorder_linear_weight", "_convolution_pointwise", "_reorder_convolution_weight",
          "_get_mkldnn_serialized_md")
"""Operators that PyTorch does not promise to keep. Without them the plain product serves."""


class Matrix:
    """A weight with the kernels that were chosen for it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, choice: Choice):
        self.bias = None if bias is None else bias.detach()
        with torch.inference_mode(False), torch.no_grad():
            weight = weight.detach()
            copied = weight if choice.layout is None else LAYOUTS[choice.layout][0](weight)
        self.runs: list[tuple[Kernel, Tensor, int]] = []  # for each number of tokens: kernel, weight, filled up to
        for most, name in zip(TOKENS, choice.kernels, strict=True):
            kernel, held = (OWN[name], weight) if name in OWN else (LAYOUTS[name][1], copied)
            for tokens in range(len(self.runs), most + 1):
                self.runs.append((kernel, held, max(most, FILLED) if kernel is convolution else tokens))
        many = next((name for name in reversed(choice.kernels) if name != "convolution"), "onednn")
        self.many = (OWN[many], weight) if many in OWN else (LAYOUTS[many][1], copied)

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, out]."""
        tokens = len(x)
        if tokens >= len(self.runs):
            kernel, weight = self.many
            return kernel(x, weight, self.bias)
        kernel, weight, filled = self.runs[tokens]
        if filled != tokens:
            return kernel(F.pad(x, (0, 0, 0, filled - tokens)), weight, self.bias)[:tokens]
        return kernel(x, weight, self.bias)


@cache
def has_kernels(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in NEEDED):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))
