"""`python -m plots batches [FOLDER]` draws what `python -m bench.gpu parts=cycle` measured on each machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from plots import batches
from plots.render import save
from plots.style import style
from results.store.errors import USAGE_ERROR, Arguments, StoreError
from results.store.files import writing


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(prog="python -m plots", description="Figures of what was recorded, as PNG, PDF and SVG.")
    parser.add_argument("figure", choices=["batches"], help="batches on each machine")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/measured"), metavar="FOLDER",
                        help="default: results/measured")
    parser.add_argument("--output", type=Path, default=Path("outputs/plots"), metavar="DIR",
                        help="default: outputs/plots")
    args = parser.parse_args(argv)
    try:
        with writing(args.output), style(salt=args.figure):
            frame = batches.read(args.folder)
            print(frame.to_markdown(index=False, floatfmt=".4g"))
            for path in save(batches.draw(frame), args.output / args.figure):
                print(path)
    except StoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
