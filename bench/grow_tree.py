"""`python -m bench.grow_tree --nodes N [--name NAME] [--prompts P] drafter=medusa [KEY=VALUE …]`: grow a static tree.

Measures a drafter's rank accuracies on a pair and grows the best static tree of N draft nodes from them. A probing tree
follows the drafter's best guess for `--depth` steps, with the next best guesses as its siblings. Under greedy decoding
every cycle shows which rank was right at each depth whose parent was right. The prompts are those of `task=…` if given,
else the calibration split of the six embedded benchmarks, which contains no test prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from bench.commands.command import Options, run_command
from bench.commands.open_cell import OpenCell
from bench.cycle import record
from methods.decode import Limits, Request
from methods.trees.static import StaticTree, best_tree, expected_length
from results.store.errors import Arguments
from results.store.files import check_writable
from tasks.mini import BENCHMARKS, MiniTask

if TYPE_CHECKING:
    from results.store.traces import Cycle
    from tasks.base import Prompt

STRICT = ["rule=greedy", "decoding.temperature=0"]


class GrowTree(Options):
    """The command's own options.

    nodes    draft nodes of the grown tree, without the root.
    name     of the file, outputs/trees/NAME.yaml.
    prompts  prompts of the task, or of each embedded benchmark.
    depth    of the probing tree.
    width    ranks measured at each depth.
    """

    nodes: int = Field(ge=1, le=4095)
    name: str = Field(pattern=r"^[\w.-]+$")
    prompts: PositiveInt
    depth: PositiveInt
    width: PositiveInt


def probe(depth: int, width: int) -> StaticTree:
    """The best guess for `depth` steps, with the `width` - 1 next best siblings at every step."""
    return StaticTree.of_paths("probe", "measurement", [(0,) * d + (r,) for d in range(depth) for r in range(width)])


def rank_accuracy(cycles: Iterable[Cycle], tree: StaticTree) -> tuple[list[list[float]], list[int]]:
    """From cycles of the probing tree: accuracy[d][r], the share of cycles where the node of rank r at depth d+1 was
    right given that its parent was; and for each depth the number of cycles with a right parent."""
    hits = [[0] * width for width in tree.widths]
    asked = [0] * tree.max_depth
    for cycle in cycles:
        for i, node in enumerate(cycle.nodes):
            spine = not any(tree.paths[i])
            if spine and node.clause in ("root", "strict") and tree.depth[i] < tree.max_depth:
                asked[tree.depth[i]] += 1
            if node.clause == "strict":
                hits[tree.depth[i] - 1][tree.ranks[i]] += 1
    return [[hit / max(count, 1) for hit in row] for row, count in zip(hits, asked, strict=True)], asked


def measure(opened: OpenCell, prompts: Sequence[Prompt]) -> list[Cycle]:
    """The cycles of greedy answers to the prompts' first turns, without the last of each: it may exceed the answer."""
    method, cycles = opened.method, []
    limits = Limits(opened.cell.max_new_tokens, method.target.eos_ids)
    for prompt in prompts:
        request = Request(opened.context(prompt), f"tree/{prompt.id}")
        cycles += record(method, request, limits, {})[:-1]
    return cycles


def calibration(count: int) -> list[Prompt]:
    """`count` prompts of each embedded benchmark, from its calibration split."""
    return [prompt for name in BENCHMARKS for prompt in MiniTask(name).prompts_of("calibration", count)]


def grow(options: GrowTree, overrides: Sequence[str]) -> None:
    """Measure, grow, write the tree and print what was measured. Raises ValueError, ModelError."""
    tree = probe(options.depth, options.width)
    with TemporaryDirectory() as folder:
        probing = Path(folder) / "probe.yaml"
        probing.write_text(tree.dump(), encoding="utf-8")
        opened = OpenCell.compose([*STRICT, *overrides, f"drafter.tree={probing}"])
        cell, file = opened.cell, opened.output / "trees" / f"{options.name}.yaml"
        check_writable(file.parent, "output.dir")
        own = any(line.startswith("task=") for line in overrides)
        prompts = opened.task.prompts(options.prompts, cell.seed) if own else calibration(options.prompts)
        cycles = measure(opened, prompts)
    accuracy, asked = rank_accuracy(cycles, tree)
    rows = "; ".join(" ".join(f"{a:.3f}" for a in row) for row in accuracy)
    corpus = cell.task.name if own else "calibration prompts of the embedded benchmarks"
    source = (f"grown from accuracies of ranks 0, 1, … measured at depths 1, 2, … of pair {cell.pair.name} with "
              f"drafter {cell.drafter.name} on {len(prompts)} prompts of {corpus}, {asked[0]} cycles: {rows}")
    falling = [sorted(row, reverse=True) for row in accuracy]  # by chance a lower rank may be right more often
    grown = StaticTree.of_paths(options.name, source, best_tree(falling, options.nodes))
    command = f"# python -m bench drafter={cell.drafter.name} drafter.tree={options.name} task=mini_gsm n=20\n"
    file.write_text(command + grown.dump(), encoding="utf-8")
    for depth, (row, count) in enumerate(zip(accuracy, asked, strict=True), start=1):
        print(f"depth {depth} ({count} cycles): " + " ".join(f"{a:.3f}" for a in row))
    print(f"{file}: {grown.nodes - 1} draft nodes, depth {grown.max_depth}, expected accept length "
          f"{expected_length(accuracy, grown):.2f}; use it with drafter.tree={file}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.grow_tree", description=__doc__.split("\n\n")[1])
    parser.add_argument("--nodes", required=True, metavar="N", help="draft nodes, the root not counted")
    parser.add_argument("--name", default="measured", help="of the file, outputs/trees/NAME.yaml")
    parser.add_argument("--prompts", default=8, metavar="P", help="prompts of the task, or of each benchmark")
    parser.add_argument("--depth", default=4, help="deepest node; Medusa: no deeper than there are heads")
    parser.add_argument("--width", default=6, help="ranks to measure at each depth")
    given, overrides = parser.parse_known_intermixed_args(argv)
    return run_command(lambda: grow(GrowTree.from_args(vars(given)), overrides))


if __name__ == "__main__":
    sys.exit(main())
