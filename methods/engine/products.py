"""Matrix products by the fastest kernel of PyTorch, measured for each shape of weight and number of tokens.

Which kernel multiplies a few tokens fastest depends on the processor: between the best and the worst lies a factor of
two to four. So the kernels of a shape are timed once per machine, and all that decodes uses what that found: target,
draft, heads, and the autoregressive baseline. A weight keeps its own layout and gets at most one copy in another, so a
model with copies takes at most twice its memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.user_cache import is_writable, noted

mkldnn: Any = torch.ops.mkldnn
TOKENS = (1, 2, 4, 8, 12, 16, 24, 32)
"""The numbers of tokens that are measured. Others take the kernel of the next larger number."""
ROUNDS, GIVEN_UP = 3, 8.0
"""Rounds over the weights that are timed, and how many times slower than the best a kernel must be to be left out."""
COLD, SMALLEST = 40 << 20, 64 << 20
"""Bytes of weights that are read in turn, more than processors keep in their caches; bytes of the smallest model that
is worth it: a forward of a smaller one finds its weights in those caches."""
GAIN = 0.97
"""A copy must shorten the products of a shape to this share, or it is not made."""
FILLED = 4
"""Tokens of the smallest image of `convolution`: one or two would want a layout of their own."""

Kernel = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""x [T, in], a weight in the kernel's layout, bias [out] or None -> [T, out]."""


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of oneDNN, which PyTorch's compiler calls."""
    out: Tensor = mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product as a convolution with a kernel of one pixel over an image of T pixels; nothing is copied."""
    tokens, inputs = x.shape
    image = x.contiguous().view(1, tokens, 1, inputs).permute(0, 3, 1, 2)
    out: Tensor = mkldnn._convolution_pointwise(image, weight, bias, [0, 0], [1, 1], [1, 1], 1, "none", [], "")
    return out.permute(0, 2, 3, 1).reshape(tokens, -1)


def _packed(weight: Tensor) -> Any:
    return mkldnn._reorder_linear_weight(weight.contiguous(), 8)


def _pixels(weight: Tensor) -> Any:
    image = weight.contiguous()[:, :, None, None]
    return mkldnn._reorder_convolution_weight(image, [0, 0], [1, 1], [1, 1], 1, [1, weight.shape[1], 16, 1])


KERNELS: Mapping[str, tuple[Callable[[Tensor], Tensor], Kernel]] = {
    "linear": (Tensor.detach, F.linear), "onednn": (Tensor.detach, onednn), "convolution": (_pixels, convolution),
    "packed": (_packed, onednn)}
"""What makes a weight's layout, and the kernel that reads it. A packed weight has the layout that oneDNN prefers for a
few tokens. That of a convolution suits some numbers of tokens only, and is converted anew, at a hundred times the
cost, for the others: its tokens are filled up to the next number that was measured."""
OWN = frozenset({"linear", "onednn"})
"""Those on a weight as it is."""


class Matrix:
    """A weight with the kernels that were chosen for it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, names: Sequence[str]):
        """`names`: of the kernels for `TOKENS`; all that are not `OWN` are the same."""
        self.bias, self.weight = None if bias is None else bias.detach(), weight
        with torch.inference_mode(False), torch.no_grad():
            made = {name: (KERNELS[name][1], KERNELS[name][0](weight)) for name in {"onednn", *names}}
        self.runs: list[tuple[Kernel, Tensor, int]] = []  # for each number of tokens: kernel, weight, filled up to
        for most, name in zip(TOKENS, names, strict=True):
            fill = max(most, FILLED) if name == "convolution" else 0
            self.runs += [(*made[name], fill or tokens) for tokens in range(len(self.runs), most + 1)]
        self.many = made["onednn" if names[-1] == "convolution" else names[-1]]

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


class Products:
    """The kernels of one model and of the models that share weights with it.

    threads  with how many CPU threads they are chosen.
    serves   whether they are; if not, the plain product serves.
    """

    def __init__(self, threads: int, serves: bool):
        self.threads, self.serves = threads, serves
        self._made: dict[tuple[Any, ...], Matrix] = {}

    @classmethod
    def of(cls, module: nn.Module, threads: int) -> Products:
        """For a model on the CPU. The plain product serves for one smaller than `SMALLEST`, where the copies do not
        fit, and without a user's cache, by which all processes share one choice."""
        size = sum(weight.nbytes for weight in module.parameters())
        room = psutil.virtual_memory().total / 4 / threads  # a process a thread with copies, in half of the memory
        return cls(threads, SMALLEST <= size <= room and is_writable())

    def matrix(self, weight: Tensor, bias: Tensor | None) -> Matrix | None:
        """The weight [out, in] with its kernels, made once, or None."""
        if not self.serves:
            return None
        key = weight.data_ptr(), weight.shape, weight.stride()
        if key not in self._made:
            outputs, inputs = weight.shape
            columns = weight.stride() != (inputs, 1)
            self._made[key] = Matrix(weight, bias, chosen(outputs, inputs, columns, weight.dtype, self.threads))
        return self._made[key]


@cache
def chosen(outputs: int, inputs: int, columns: bool, dtype: torch.dtype, threads: int) -> tuple[str, ...]:
    """The kernel for each of `TOKENS` for weights [outputs, inputs] whose columns, or else rows, are contiguous:
    measured once per machine and kept in the user's cache."""
    def read(value: Any) -> tuple[str, ...]:
        names = tuple(value)
        if len(names) != len(TOKENS) or not {*names} <= {*KERNELS} or len({*names} - OWN) > 1:
            raise ValueError("not a choice of kernels")
        return names

    model = re.search(r"^(?:model name|CPU part)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", torch.backends.cpu.get_cpu_capability())
    return noted(f"kernels of {(outputs, inputs, columns)}, {model and model[1]}, {isa}, {threads} threads, {dtype}, "
                 f"torch {torch.__version__}",
                 lambda: fastest(measured(outputs, inputs, columns, dtype, threads)), read)


def fastest(times: Mapping[str, Sequence[float]]) -> tuple[str, ...]:
    """Kernel -> seconds for each of `TOKENS`: the kernels on the weight as it is and on one copy whose products take
    the smallest share of the time without a copy, all numbers of tokens counting alike."""
    def kernels(*copy: str) -> tuple[str, ...]:
        usable = [name for name in times if name in OWN or name in copy]
        return tuple(min(usable, key=lambda name: times[name][place]) for place in range(len(TOKENS)))

    def share(copy: str) -> float:
        return sum(times[name][place] / times[plain[place]][place] for place, name in enumerate(kernels(copy)))

    plain = kernels()
    best = min(times.keys() - OWN, key=share, default="linear")
    return kernels(best) if share(best) <= GAIN * len(TOKENS) else plain


@torch.inference_mode()
def measured(outputs: int, inputs: int, columns: bool, dtype: torch.dtype,
             threads: int) -> dict[str, tuple[float, ...]]:
    """Kernel -> the least seconds of one product for each of `TOKENS`. The kernels take turns and read cold weights, as
    those of a forward are."""
    rows = torch.full((outputs, inputs), 0.01, dtype=dtype)
    weights = [rows.t().contiguous().t() if columns else rows.clone() for _ in range(-(-COLD // rows.nbytes))]
    x = torch.full((max(TOKENS), inputs), 0.01, dtype=dtype)
    held: dict[str, tuple[Kernel, list[Tensor]]] = {}
    for name, (make, kernel) in KERNELS.items():
        with suppress(RuntimeError, AttributeError):  # this processor has no such layout, this PyTorch no such operator
            kernel(x, make(weights[0]), None)
            held[name] = kernel, [make(weight) for weight in weights]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return dict(zip(held, zip(*(_seconds(held, x, tokens) for tokens in TOKENS), strict=True), strict=True))
    finally:
        torch.set_num_threads(before)


def _seconds(held: Mapping[str, tuple[Kernel, list[Tensor]]], x: Tensor, tokens: int) -> list[float]:
    """The least seconds of one product of each kernel with so many rows of `x`, the mean over the weights."""
    best = dict.fromkeys(held, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, (kernel, weights) in held.items():
            given = x[:max(tokens, FILLED) if kernel is convolution else tokens]
            some = weights if turn else weights[:1]
            if turn == 0:
                kernel(given, weights[0], None)  # the first product of a shape compiles its kernel
            elif best[name] > min(best.values()) * GIVEN_UP:
                continue
            began = time.perf_counter()
            for weight in some:
                kernel(given, weight, None)
            seconds = (time.perf_counter() - began) / len(some)
            best[name] = min(best[name], seconds) if turn > 1 else seconds  # turn 0: one weight, in the caches
    return list(best.values())
