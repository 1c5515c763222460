"""`python -m plots tree [FILE] [--output DIR]`: draws a draft–verify cycle that `python -m bench.cycle` wrote down."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from plots import tree
from plots.render import save
from plots.style import style
from results.store.cycles import CycleError, read_cycle
from results.store.errors import StoreError
from results.store.files import writing
from results.store.reasons import USAGE_ERROR, Arguments

LATEST = Path("outputs/cycle.json")
"""Where `python -m bench.cycle` writes unless told otherwise."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(prog="python -m plots", description="Figures of what was recorded.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("tree", help="one draft–verify cycle as a tree",
                              description="Draw a cycle that `python -m bench.cycle` wrote, as PNG, PDF and SVG.")
    one.add_argument("file", nargs="?", type=Path, default=LATEST, help=f"default: {LATEST}")
    one.add_argument("--output", type=Path, default=Path("outputs/plots"), metavar="DIR", help="default: outputs/plots")
    args = parser.parse_args(argv)
    try:
        cycle = read_cycle(args.file)
        with writing(args.output), style(salt="tree"), mpl.rc_context({"axes.grid": False}):
            for path in save(tree.draw(cycle), args.output / "tree"):
                print(path)
    except (CycleError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
