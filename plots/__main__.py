"""`python -m plots tree [FILE]` draws a draft–verify cycle that `python -m bench.cycle` wrote down; `python -m plots
batches [FOLDER]` what `python -m bench.gpu parts=cycle` measured on each machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from plots import batches, tree
from plots.render import save
from plots.style import style
from results.store.errors import USAGE_ERROR, Arguments, StoreError
from results.store.files import writing
from results.store.traces import CycleError, read_cycle

FROM = {"tree": Path("outputs/cycle.json"), "batches": Path("results/measured")}
"""Where a figure's numbers are read from unless told otherwise."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(prog="python -m plots", description="Figures of what was recorded, as PNG, PDF and SVG.")
    parser.add_argument("figure", choices=FROM, help="one draft–verify cycle as a tree, or batches on each machine")
    parser.add_argument("file", nargs="?", type=Path, help="default: " + ", ".join(map(str, FROM.values())))
    parser.add_argument("--output", type=Path, default=Path("outputs/plots"), metavar="DIR",
                        help="default: outputs/plots")
    args = parser.parse_args(argv)
    file = args.file or FROM[args.figure]
    try:
        with writing(args.output), style(salt=args.figure), mpl.rc_context({"axes.grid": args.figure == "batches"}):
            if args.figure == "tree":
                figure = tree.draw(read_cycle(file))
            else:
                frame = batches.read(file)
                print(frame.to_markdown(index=False, floatfmt=".4g"))
                figure = batches.draw(frame)
            for path in save(figure, args.output / args.figure, file if file.is_file() else None):
                print(path)
    except (CycleError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
