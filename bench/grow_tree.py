"""`python -m bench.grow_tree --nodes N [--name NAME] [--prompts P] drafter=medusa [KEY=VALUE …]`: measure a drafter's
rank accuracies on a pair and grow the best static tree of N draft nodes from them.

A probing tree follows the drafter's best guess for `--depth` steps and hangs the next best ones beside it. Decoded
greedily, every cycle says which rank was right at each depth whose parent was. Prompts: with `task=…` that task's,
otherwise the calibration split of the six embedded benchmarks, which no test prompt is in."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.config.cell import Cell
from bench.config.compose import composer
from bench.config.errors import ConfigError
from bench.config.settings import Settings
from bench.cycle import record
from bench.run.conversation import context
from bench.run.model_pool import ModelPool, use_threads
from methods.decode import Limits, Request
from methods.engine.source import ModelError
from methods.method import Method
from methods.trees.static import StaticTree, best_tree, expected_length
from results.store.cycles import Cycle
from tasks.base import Prompt
from tasks.mini import BENCHMARKS, MiniTask

STRICT = ["rule=greedy", "decoding.temperature=0"]


def probe(depth: int, width: int) -> StaticTree:
    """The best guess `depth` times, with its `width` - 1 next best siblings at every step."""
    return StaticTree.of_paths("probe", "measurement", [(0,) * d + (r,) for d in range(depth) for r in range(width)])


def rank_accuracy(cycles: Iterable[Cycle], tree: StaticTree) -> tuple[list[list[float]], list[int]]:
    """From cycles of the probing tree: accuracy[d][r], how often the node of rank r at depth d+1 was right when its
    parent was; and in how many cycles that could be asked."""
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


def measure(method: Method, prompts: Sequence[Prompt], tree: StaticTree, max_new_tokens: int) -> list[Cycle]:
    """The cycles of greedy answers to the prompts' first turns; the last one of each may reach behind its end."""
    limits, found = Limits(max_new_tokens, method.target.eos_ids), []
    for prompt in prompts:
        request = Request(context(method.target, prompt, []), f"tree/{prompt.id}")
        found += record(method, request, limits, {})[:-1]
    return found


def calibration(count: int) -> list[Prompt]:
    """`count` prompts of each embedded benchmark that are neither trained on nor tested."""
    return [prompt for name in BENCHMARKS for prompt in MiniTask(name).prompts_of("calibration", count)]


def grown(args: argparse.Namespace, overrides: Sequence[str]) -> tuple[StaticTree, list[list[float]], list[int], Path]:
    """Measure and grow. Raises ConfigError, ModelError."""
    tree = probe(args.depth, args.width)
    with TemporaryDirectory() as folder, composer() as hydra:
        file = Path(folder) / "probe.yaml"
        file.write_text(tree.dump(), encoding="utf-8")
        config = hydra.point([*STRICT, *overrides, f"drafter.tree={file}"]).config
        cell, settings = Cell.from_config(config), Settings.from_config(config)
        own = any(line.startswith("task=") for line in overrides)
        prompts = cell.load_task().prompts(args.prompts, cell.seed) if own else calibration(args.prompts)
        use_threads(cell.engine)
        cycles = measure(ModelPool().method(cell), prompts, tree, cell.decoding.max_new_tokens)
    accuracy, asked = rank_accuracy(cycles, tree)
    rows = "; ".join(" ".join(f"{a:.3f}" for a in row) for row in accuracy)
    corpus = cell.task.name if own else "calibration prompts of the embedded benchmarks"
    source = (f"grown from accuracies of ranks 0, 1, … measured at depths 1, 2, … of pair {cell.pair.name} with "
              f"drafter {cell.drafter.name} on {len(prompts)} prompts of {corpus}, {asked[0]} cycles: {rows}")
    falling = [sorted(row, reverse=True) for row in accuracy]  # by chance a rank may beat a better one
    found = StaticTree.of_paths(args.name, source, best_tree(falling, args.nodes))
    file = settings.output.dir / "trees" / f"{args.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    first = f"# python -m bench drafter={cell.drafter.name} drafter.tree={args.name} task=mini_gsm n=20\n"
    file.write_text(first + found.dump(), encoding="utf-8")
    return replace(found, name=str(file)), accuracy, asked, file


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.grow_tree", description=__doc__.split("\n\n")[1])
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="draft nodes, the root not counted")
    parser.add_argument("--name", default="measured", help="of the file, outputs/trees/NAME.yaml")
    parser.add_argument("--prompts", type=int, default=8, metavar="P", help="prompts of the task, or of each benchmark")
    parser.add_argument("--depth", type=int, default=4, help="deepest node; Medusa: no deeper than there are heads")
    parser.add_argument("--width", type=int, default=6, help="ranks to measure at each depth")
    args, overrides = parser.parse_known_intermixed_args(argv)
    try:
        if min(args.nodes, args.prompts, args.depth, args.width) < 1:
            raise ConfigError("--nodes, --prompts, --depth and --width must be at least 1")
        tree, accuracy, asked, file = grown(args, overrides)
    except (ConfigError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for depth, (row, count) in enumerate(zip(accuracy, asked, strict=True), start=1):
        print(f"depth {depth} ({count} cycles): " + " ".join(f"{a:.3f}" for a in row))
    print(f"{file}: {tree.nodes - 1} draft nodes, depth {tree.max_depth}, expected accept length "
          f"{expected_length(accuracy, tree):.2f}; use it with drafter.tree={file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
