"""`python -m plots tree [FILE]` draws a draft–verify cycle that `python -m bench.cycle` wrote down; `python -m plots
modelled REPORT.csv …` the directly timed speeds of reports against those modelled over all prompts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from plots import predicted, tree
from plots.render import save
from plots.style import note, style
from results.store.errors import USAGE_ERROR, Arguments, StoreError
from results.store.files import writing
from results.store.traces import CycleError, read_cycle

LATEST = Path("outputs/cycle.json")
"""Where `python -m bench.cycle` writes unless told otherwise."""


SPEEDS = ("answer_speedup_modelled", "answer_speedup")


def modelled(files: Sequence[Path]) -> Figure:
    """The cells of reports' CSV files by task and temperature. Raises StoreError for a file without both speeds."""
    groups: dict[str, dict[str, tuple[float, float]]] = {}
    for file in files:
        try:
            frame = pd.read_csv(file)
            speeds = frame[frame["value_name"].isin(SPEEDS)].pivot_table("value", ["pair", "temperature", "cell"],
                                                                         "value_name", dropna=True)
            points = speeds[list(SPEEDS)].dropna().itertuples()
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(f"{file}: not the CSV of a report with {' and '.join(SPEEDS)}: {error}") from error
        for (pair, temperature, cell), *values in points:
            if values[0] != 1:  # the target alone
                groups.setdefault(f"{pair}, T = {temperature:g}", {})[cell] = (values[0], values[1])
    if not groups:
        raise StoreError(f"{', '.join(map(str, files))}: no cell with {' and '.join(SPEEDS)}")
    figure = predicted.draw({name: list(points.values()) for name, points in groups.items()},
                            ("answer speedup, modelled over all prompts", "timed directly"))
    note(figure, f"{sum(map(len, groups.values()))} cells of {', '.join(file.stem for file in files)}")
    return figure


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(prog="python -m plots", description="Figures of what was recorded.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("tree", help="one draft–verify cycle as a tree",
                              description="Draw a cycle that `python -m bench.cycle` wrote, as PNG, PDF and SVG.")
    one.add_argument("file", nargs="?", type=Path, default=LATEST, help=f"default: {LATEST}")
    several = commands.add_parser("modelled", help="directly timed against modelled speeds")
    several.add_argument("files", nargs="+", type=Path, metavar="REPORT.csv")
    for command in (one, several):
        command.add_argument("--output", type=Path, default=Path("outputs/plots"), metavar="DIR",
                             help="default: outputs/plots")
    args = parser.parse_args(argv)
    try:
        cycle = read_cycle(args.file) if args.command == "tree" else None
        with writing(args.output), style(salt=args.command), mpl.rc_context({"axes.grid": cycle is None}):
            figure = modelled(args.files) if cycle is None else tree.draw(cycle)
            for path in save(figure, args.output / args.command):
                print(path)
    except (CycleError, StoreError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
