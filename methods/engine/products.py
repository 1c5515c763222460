"""Matrix products by the fastest kernel of PyTorch, measured for each shape of weight and number of tokens.

Which kernel multiplies a few tokens fastest depends on the processor: between the best and the worst here lies a factor
of two to four. So the kernels are timed once per machine, and all processes on it use what that found. Everything that
decodes shares the choice: target, draft, heads, and the autoregressive baseline.

A weight keeps its own layout and gets at most one copy in another; a model with copies takes at most twice its
memory."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from methods.engine.kernels import FILLED, LAYOUTS, OWN, TOKENS, Choice, Kernel, Matrix, convolution, has_kernels
from methods.engine.user_cache import is_writable, noted

ROUNDS, HOPELESS, ABSURD = 4, 1.3, 8.0
"""How often each kernel is timed, the best counts; how many times slower than the best a kernel must be, to be given up
after one round, or after one product."""
COLD = 40 << 20
"""Bytes of weights of one shape that are read in turn: more than processors keep in their caches."""
SMALLEST = 64 << 20
"""Bytes of the weights of a model that is worth it: smaller ones are read from the processor's caches."""
GAIN = 0.97
"""A copy must shorten the products of a shape to this share, or it is not made."""

class Shape(NamedTuple):
    """A weight [outputs, inputs] whose `columns` or rows are contiguous; a forward reads `number` of them."""

    outputs: int
    inputs: int
    columns: bool
    number: int

    def __str__(self) -> str:
        return f"{self.outputs}x{self.inputs}"


class Products:
    """The chosen kernels of one model and of the models that share weights with it.

    choices  outputs, inputs and whether columns are contiguous -> the kernels; empty: the plain product serves.
    threads  with how many CPU threads they were chosen.
    """

    def __init__(self, choices: Mapping[Shape, Choice], threads: int):
        self.threads = threads
        self.choices = {shape[:3]: choice for shape, choice in choices.items()}
        self._made: dict[tuple[Any, ...], Matrix] = {}

    def __str__(self) -> str:
        """`576x1536: linear to 1, packed 8 to 32; …`; empty where the plain product serves."""
        return "; ".join(f"{outputs}x{inputs}: {one.shown()}" for (outputs, inputs, _), one in self.choices.items())

    def matrix(self, weight: Tensor, bias: Tensor | None) -> Matrix | None:
        """The weight [out, in] with its kernels, made once; None for a shape that was not chosen for."""
        outputs, inputs = weight.shape
        choice = self.choices.get((outputs, inputs, weight.stride() != (inputs, 1)))
        if choice is None:
            return None
        key = weight.data_ptr(), weight.shape, weight.stride()
        if key not in self._made:
            self._made[key] = Matrix(weight, bias, choice)
        return self._made[key]


def products_of(module: nn.Module, fingerprint: str, threads: int, smallest: int = SMALLEST) -> Products | None:
    """The kernels for a model's weights, chosen with so many CPU threads. The plain product serves for a model smaller
    than `smallest` bytes, where the copies do not fit, and without oneDNN's private operators; None: on a device, and
    without a user's cache, by which all processes share one choice."""
    weight = next(module.parameters())
    if weight.device.type != "cpu" or not is_writable():
        return None
    dtype, found = str(weight.dtype).removeprefix("torch."), shapes(module)
    if not has_kernels(weight.dtype) or not copied_bytes(found, weight.dtype, threads, smallest):
        found = []
    _note(fingerprint, dtype, threads, lambda: [list(shape) for shape in found])
    return Products({shape: choice_of(shape, dtype, threads) for shape in found}, threads)


def of_head(module: nn.Module, fingerprint: str, target: Products | None) -> Products | None:
    """The kernels for a head's weights, where its target has chosen ones: it runs between the target's forwards, which
    empty the processor's caches, however small it is."""
    if target is None:
        return None
    return products_of(module, fingerprint, target.threads, 0 if target.choices else sys.maxsize)


def note_shared(module: nn.Module, fingerprint: str, threads: int) -> None:
    """Remember that a cut has the kernels of its target, and none of its own."""
    products_of(module, fingerprint, threads, sys.maxsize)


def known(fingerprint: str, dtype: str, threads: int) -> dict[str, str] | None:
    """Shape of weight -> its kernels, of a model whose kernels were chosen before, empty where the plain product
    serves; None where nothing was chosen yet."""
    if not is_writable():
        return {}
    try:
        found = _note(fingerprint, dtype, threads, _unknown)
    except LookupError:
        return None
    return {str(shape): choice_of(shape, dtype, threads).shown() for shape in found}


def _unknown() -> list[list[int]]:
    raise LookupError


def _note(fingerprint: str, dtype: str, threads: int, shapes: Callable[[], list[list[int]]]) -> list[Shape]:
    """The shapes of a model's weights."""
    return noted(f"shapes of {fingerprint}, {_machine(threads)}, {_memory() >> 30} GB, {dtype}", shapes,
                 lambda value: [Shape(int(out), int(size), bool(columns), int(number))
                                for out, size, columns, number in value])


def shapes(module: nn.Module) -> list[Shape]:
    """The weights that the forwards of a model multiply with, those of one shape together. Projections that read the
    same input are one weight whose columns are contiguous (`methods/engine/block.py`)."""
    found: Counter[tuple[int, int, bool]] = Counter()
    joined: set[int] = set()
    for layer in module.modules():
        attention: Any = getattr(layer, "self_attn", None)
        mlp: Any = getattr(layer, "mlp", None)
        if not hasattr(attention, "o_proj") or not hasattr(mlp, "gate_proj"):
            continue
        qkv = [getattr(attention, name, None) for name in ("q_proj", "k_proj", "v_proj")]  # Gemma 3n shares some
        for group in ([part for part in qkv if part is not None], (attention.o_proj,), (mlp.gate_proj, mlp.up_proj),
                      (mlp.down_proj,)):
            joined |= {id(linear) for linear in group}
            found[sum(linear.weight.shape[0] for linear in group), group[0].weight.shape[1], True] += 1
    for linear in module.modules():
        if isinstance(linear, nn.Linear) and id(linear) not in joined:
            found[linear.weight.shape[0], linear.weight.shape[1], False] += 1
    return [Shape(*shape, number) for shape, number in sorted(found.items())]


def copied_bytes(shapes: list[Shape], dtype: torch.dtype, threads: int, smallest: int = SMALLEST) -> int:
    """Bytes that copies of these weights take at most; 0 where none are made. As many processes as the machine has
    threads may hold a model: with their copies, all of them must fit half of its memory."""
    size = sum(shape.outputs * shape.inputs * shape.number for shape in shapes) * dtype.itemsize
    return size if smallest <= size and 2 * size * threads <= _memory() / 2 else 0


@cache
def _memory() -> int:
    """Bytes of memory, of this machine or of the control group that limits this process."""
    limit = Path("/sys/fs/cgroup/memory.max")
    given = limit.read_text().strip() if limit.exists() else "max"
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(whole, int(given)) if given.isdigit() else whole


@cache
def _machine(threads: int) -> str:
    """What the fastest kernel depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
                 platform.processor())
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", torch.backends.cpu.get_cpu_capability())
    return f"{model}, {isa}, {threads} threads, torch {torch.__version__}"


def choice_of(shape: Shape, dtype: str, threads: int) -> Choice:
    """The kernels for weights of a shape, measured once per machine and kept in the user's cache."""
    return noted(f"kernels of {tuple(shape)}, {_machine(threads)}, {dtype}",
                 lambda: fastest(measured(shape, getattr(torch, dtype), threads))._asdict(), Choice.read)


def fastest(times: Mapping[str, tuple[float, ...]]) -> Choice:
    """Kernel -> seconds for each of `TOKENS`: the layout whose kernels, with those on the weight as it is, take the
    smallest share of the time without a copy, all numbers of tokens counting alike."""
    def kernels(layout: str | None) -> tuple[str, ...]:
        usable = [name for name in times if name in OWN or name == layout]
        return tuple(min(usable, key=lambda name: times[name][place]) for place in range(len(TOKENS)))

    def share(layout: str | None) -> float:
        pairs = enumerate(zip(kernels(layout), kernels(None), strict=True))
        return sum(times[name][place] / times[plain][place] for place, (name, plain) in pairs) / len(TOKENS)

    best = min((name for name in times if name not in OWN), key=share, default=None)
    layout = best if best is not None and share(best) <= GAIN else None
    return Choice(layout, kernels(layout))


@torch.inference_mode()
def measured(shape: Shape, dtype: torch.dtype, threads: int) -> dict[str, tuple[float, ...]]:
    """Kernel -> the least seconds of one product for each of `TOKENS`. The kernels take turns, and read as many weights
    in turn as a forward does, up to `COLD`."""
    rows = torch.full((shape.outputs, shape.inputs), 0.01, dtype=dtype)
    count = max(1, min(shape.number, -(-COLD // rows.nbytes)))
    weights = [rows.t().contiguous().t() if shape.columns else rows.clone() for _ in range(count)]
    held: dict[str, tuple[Kernel, list[Tensor]]] = {name: (kernel, weights) for name, kernel in OWN.items()}
    layouts = set()
    for name, (make, kernel) in LAYOUTS.items():
        try:
            layout = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(make(weights[0])).tolist())
        except RuntimeError:  # oneDNN has no such layout on this processor
            continue
        if layout not in layouts:
            layouts.add(layout)
            held[name] = kernel, [make(weight) for weight in weights]
    x = torch.full((max(TOKENS), shape.inputs), 0.01, dtype=dtype)
    with _threads(threads):
        return dict(zip(held, zip(*(_seconds(held, x, tokens) for tokens in TOKENS), strict=True), strict=True))


def _seconds(held: Mapping[str, tuple[Kernel, list[Tensor]]], x: Tensor, tokens: int) -> list[float]:
    """The least seconds of one product of each kernel with so many rows of `x`."""
    best = dict.fromkeys(held, float("inf"))
    for turn in range(ROUNDS):
        for name, (kernel, weights) in held.items():
            given = x[:max(tokens, FILLED) if kernel is convolution else tokens]
            if turn == 0:
                kernel(given, weights[0], None)  # the first product of a shape compiles its kernel
                best[name] = _time(kernel, given, weights[:1])
                if best[name] > ABSURD * min(best.values()):  # a layout that is converted each time
                    continue
            if turn < 2 or best[name] <= HOPELESS * min(best.values()):
                seconds = _time(kernel, given, weights)
                best[name] = min(best[name], seconds) if turn else seconds
    return list(best.values())


def _time(kernel: Kernel, x: Tensor, weights: list[Tensor]) -> float:
    """Seconds of one product, the mean over the weights."""
    began = time.perf_counter()
    for weight in weights:
        kernel(x, weight, None)
    return (time.perf_counter() - began) / len(weights)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
