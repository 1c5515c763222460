"""Part `forward`: seconds of one forward of k tokens behind a context, at the shapes that people
run.

Weights are random and made on the device. As CUDA graphs, and eager at batch 1; bytes moved beside
a copy of the same run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from bench.config.paths import PROJECT
from methods import registry
from methods.engine.device import now
from methods.engine.graphs import Graphs
from methods.engine.loading import load_model, nbytes
from methods.engine.probe import probe

if TYPE_CHECKING:
    from bench.commands.gpu.part import Found, Machine, Row
    from methods.engine.language_model import LanguageModel

SHAPES = ("llama31_8b", "qwen3_8b", "vicuna_7b")
TOKENS, BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 32, 64), (1, 8, 64), (512, 2048)
TINY_TOKENS, TINY_BATCHES, TINY_CONTEXTS = (1, 8), (1, 2), (64,)
TITLE = "one forward of k tokens"


def measure(machine: Machine, found: Found) -> None:
    """Fill `found`; see the module."""
    copy = found.step(machine, "bandwidth of a copy", partial(copy_bandwidth, machine.device))
    for name in () if copy is None else ("tiny",) if machine.tiny else SHAPES:
        target = found.step(
            machine, f"{name}: random weights", partial(random_model, machine, name)
        )
        if target is not None:
            _shape(machine, found, name, target, copy or 0.0)
        del target


def random_model(machine: Machine, name: str) -> LanguageModel:
    """The shape of models/shapes with random weights, made on the device. Raises ModelError."""
    dtype = "float32" if machine.tiny else "bfloat16"
    return load_model(
        f"random:{PROJECT / 'models' / 'shapes' / name}", dtype=dtype, device=str(machine.device)
    )


def _shape(machine: Machine, found: Found, name: str, target: LanguageModel, copy: float) -> None:
    tokens, batches, contexts = (
        (TINY_TOKENS, TINY_BATCHES, TINY_CONTEXTS) if machine.tiny else (TOKENS, BATCHES, CONTEXTS)
    )
    weights, entry = step_bytes(target)
    found.rows(
        machine,
        f"{name}: the probe of a model that is loaded for the first time",
        "the probe of a model",
        lambda: [{"shape": name, "s": probe(target).seconds}],
    )
    for context, rows in product(contexts, batches):
        need = (
            1.15 * rows * (context + max(tokens) + 64) * entry
            + rows * max(tokens) * target.vocab_size * 8
        )
        what = f"{name}: batch {rows} behind {context} tokens"
        if need > machine.free():
            found.skipped.append(
                f"{what}: needs {need / 1e9:.0f} GB beside the weights; "
                f"{machine.free() / 1e9:.0f} GB are free"
            )
            continue
        modes = ("eager",) if machine.tiny else ("eager", "graphs") if rows == 1 else ("graphs",)
        moved = weights + rows * entry * context
        found.rows(
            machine,
            what,
            TITLE,
            partial(_rows, name, target, context, rows, modes, tokens, moved, copy),
        )


def _rows(
    name: str,
    target: LanguageModel,
    context: int,
    rows: int,
    modes: Sequence[str],
    tokens: Sequence[int],
    moved: float,
    copy: float,
) -> list[Row]:
    return [
        {
            "shape": name,
            "mode": mode,
            "context": context,
            "batch": rows,
            "k": count,
            "ms": 1e3 * seconds,
            "GB/s": moved / seconds / 1e9,
            "of the copy": moved / seconds / copy,
        }
        for mode in modes
        for count, seconds in forwards(target, rows, context, tokens, mode == "graphs").items()
    ]


@torch.inference_mode()
def forwards(
    target: LanguageModel, rows: int, context: int, tokens: Sequence[int], graphs: bool
) -> dict[int, float]:
    """Tokens of a row -> seconds of one forward of a chain of so many behind `context` random cache
    entries."""
    target.graphs = Graphs() if graphs else None
    cache = target.new_cache(rows, context + max(tokens) + 1)
    cache.store.normal_()
    cache.set_lengths([context] * rows)
    found = {}
    for count in tokens:
        ids = torch.arange(rows * count, device=target.device).view(rows, count) % target.vocab_size
        found[count] = median_seconds(partial(target.forward, ids, cache), target.device)
    target.graphs = None
    return found


def median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median over runs of a tenth of a second at most, after three that warm up and record."""
    for _ in range(3):
        began = now(device)
        work()
        took = now(device) - began
    times = []
    for _ in range(max(3, min(20, int(0.1 / took)))):
        began = now(device)
        work()
        times.append(now(device) - began)
    return statistics.median(times)


def random_head(machine: Machine, name: str, target: LanguageModel) -> Any:
    """An EAGLE-3 head of the shape of models/shapes for a random target. Raises ModelError."""
    dtype = "float32" if machine.tiny else "bfloat16"
    return registry.drafter("eagle3")().load(
        f"random:{PROJECT / 'models' / 'shapes' / f'{name}_eagle3'}",
        target,
        revision=None,
        dtype=dtype,
        device=str(machine.device),
    )


COPY_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}
REPEATS = 10


@torch.inference_mode()
def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second of the fastest of `REPEATS` copies in the device's memory, read and written
    (as STREAM counts)."""
    source = torch.zeros(COPY_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(REPEATS + 1):
        began = now(device)
        target.copy_(source)
        times.append(now(device) - began)
    return 2 * source.nbytes / min(times[1:])


def step_bytes(target: LanguageModel) -> tuple[int, int]:
    """Bytes one autoregressive step must read: of the weights, without an untied input embedding,
    and of each cached token."""
    model: Any = target.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    unread = 0 if embedding is head else int(embedding.nbytes)
    cache = target.new_cache(1, 1)
    return nbytes(model) - unread, cache.nbytes // cache.slots
