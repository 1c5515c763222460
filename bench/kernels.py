"""`python -m bench.kernels [KEY=VALUE …]`: every way to multiply a pair's weights on this CPU,
beside the one that the table of the processor chooses (methods/engine/processor.py).

The overrides are those of `python -m bench`; pair=tiny where none is given. Each weight of the
target is multiplied by 1 to 32 tokens in float32, alternating among the ways, so that a slow or
busy machine biases none. As in a forward, a product finds its weight outside of the nearest caches:
copies of 16 MiB in all take turns. A cell is the median of µs for one product; * marks what the
table chooses. The last line compares the sum of what it chooses with the sum of the best."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

import torch
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Column, Table
from torch import Tensor

from bench.cli.command import Options, run_command
from bench.config.command import key_of
from bench.run.models import ModelPool
from bench.run.one_cell import open_cell
from methods.engine.decoder import Product, Projection
from methods.engine.processor import KERNELS, MIB, NEVER, Kernel, Kernels, described
from methods.engine.products import SMALLEST, Matrix
from results.store.errors import Arguments

if TYPE_CHECKING:
    from methods.engine.decoder import Decoder

WIDTHS = (1, 2, 3, 5, 8, 16, 24, 32)
"""Tokens of one product: a plain step, a chain, a tree."""
IN_TURN = 16 * MIB
"""Bytes of the copies of one weight."""
RIGHT = 1.05
"""The table is right where its choices take at most so many times as long as the best ones."""
FORCED: dict[Kernel, Kernels] = {
    "PyTorch": Kernels(NEVER, ()),
    "oneDNN": Kernels(1, ()),
    "oneDNN, packed": Kernels(NEVER, ((0, 1),)),
}
"""Tables that choose one way always."""


class KernelOptions(Options):
    """The command's own options.

    rounds  products that the median is taken of.
    """

    rounds: PositiveInt


def weights_of(decoder: Decoder) -> list[Tensor]:
    """One weight [out, in] of each shape and layout in the model."""
    parts = [part for block in decoder.blocks for part in vars(block).values()]
    weights = [part.weight for part in parts if isinstance(part, Projection)]
    head = decoder.head
    weights += [head.weight.detach()] if isinstance(head, Product) else []
    return list({(weight.shape, weight.stride()): weight for weight in weights}.values())


def arms_of(weight: Tensor) -> dict[Kernel, list[Matrix]]:
    """The weight and copies of it, in the same layout, for each way to multiply it."""
    copies = [weight.clone() for _ in range(max(1, min(64, IN_TURN // weight.nbytes)))]
    return {
        kernel: [Matrix(copy, None, True, FORCED[kernel]) for copy in copies]
        for kernel in get_args(Kernel)
    }


@torch.inference_mode()
def microseconds(
    arms: dict[Kernel, list[Matrix]], tokens: int, rounds: int, clock: Callable[[], float]
) -> dict[Kernel, float]:
    """Of one product by each way, the median of `rounds`."""
    first = next(iter(arms.values()))
    x = torch.randn(tokens, first[0].weight.shape[1])
    spent: dict[Kernel, list[float]] = {kernel: [] for kernel in arms}
    for number in range(rounds + 1):  # the first round warms up
        for kernel, matrices in arms.items():
            began = clock()
            for matrix in matrices:
                matrix(x)
            if number:
                spent[kernel].append((clock() - began) / len(matrices) * 1e6)
    return {kernel: statistics.median(times) for kernel, times in spent.items()}


def run(options: KernelOptions, overrides: Sequence[str]) -> None:
    """Measure and print. Raises ValueError, ModelError, StoreError."""
    lines = list(overrides)
    if "pair" not in set(map(key_of, lines)):
        lines.append("pair=tiny")
    cell, method = open_cell([*lines, "rule=lossless", "drafter=none"], ModelPool())
    target, threads = method.target, torch.get_num_threads()
    if target.lean is None or target.device.type != "cpu" or target.model.dtype != torch.float32:
        raise ValueError(
            f"pair={cell.pair.name}: the table is for the lean decoder in float32 on the CPU; give "
            "engine.device=cpu engine.dtype=float32 and a pair of the Llama family"
        )
    packs = sum(weight.nbytes for weight in target.model.parameters()) >= SMALLEST
    clock = time.process_time if threads == 1 else time.perf_counter
    show(
        {
            (tuple(weight.shape), weight.nbytes, tokens): microseconds(
                arms, tokens, options.rounds, clock
            )
            for weight in weights_of(target.lean)
            for arms in [arms_of(weight)]
            for tokens in WIDTHS
        },
        KERNELS,
        packs,
        f"{cell.pair.name}, float32, threads: {threads}, {described('model name')}",
    )


def show(
    measured: dict[tuple[tuple[int, ...], int, int], dict[Kernel, float]],
    kernels: Kernels,
    packs: bool,
    title: str,
) -> None:
    """Print µs by weight (shape, bytes) and tokens, the table's choice marked, and whether it is
    right here."""
    ways = [way for way in get_args(Kernel) if packs or way != "oneDNN, packed"]
    numbers = (Column(name, justify="right") for name in ("tokens", *ways))
    table, taken, best = Table("weight", *numbers, title=title), 0.0, 0.0
    for (shape, size, tokens), times in measured.items():
        choice = kernels.chosen(size, tokens, packs)
        cells = (f"{times[way]:.1f}{'*' if way == choice else ' '}" for way in ways)
        table.add_row("×".join(map(str, shape)), str(tokens), *cells)
        taken += times[choice]
        best += min(times[way] for way in ways)
    console = Console(width=100)
    console.print(table)
    verdict = "right" if taken <= RIGHT * best else "not right"
    console.print(
        f"the table is {verdict} here: what it chooses takes {taken / best:.2f} of the time of the "
        f"best ({kernels})",
        soft_wrap=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(
        prog="python -m bench.kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--rounds", default=30, help="products that the median is taken of")
    options = vars(parser.parse_intermixed_args(argv))
    overrides = options.pop("overrides")
    return run_command(lambda: run(KernelOptions.from_args(options), overrides))


if __name__ == "__main__":
    sys.exit(main())
