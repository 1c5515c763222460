"""`python -m bench.compare A B`: what changed from store A to store B, such as between two versions of the project.

Cells are matched by name, or else by settings. A cell is worse if samples of the same models differ, or if τ or speedup
is lower beyond its 95% interval: a paired bootstrap over the common prompts, which does not cover the difference
between two measuring sessions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.commands.command import FAILED, run_command
from bench.config.recorded import check_settings
from results.metrics.comparison import METRICS, Change, Comparison, compare_stores
from results.store.cells import Store
from results.store.reasons import Arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 no cell is worse, 1 a cell is worse or cannot be read, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.compare", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, metavar="A", help="folder of a store")
    parser.add_argument("after", type=Path, metavar="B", help="folder of another store")
    args = parser.parse_args(argv)
    return run_command(lambda: run(args.before, args.after))


def run(before: Path, after: Path) -> int:
    """Compare two stores and print what changed. Returns the exit status. Raises ValueError, StoreError, one line."""
    for folder in (before, after):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder; give the stores of two runs")
    stores = Store(before), Store(after)
    check_settings(*stores)
    compared = compare_stores(*stores)
    if not compared.changes and not compared.unreadable:
        raise ValueError(f"{before} and {after}: no cell has the same name or settings in both; give the "
                         "stores of two runs of one command")
    console = Console(width=None if sys.stdout.isatty() else 160)
    changed = [change for change in compared.changes if is_changed(change)]
    if changed:
        console.print(table(changed), highlight=False)
    console.print(counts(compared, len(changed)), highlight=False, markup=False)
    worse = [(change.after.key, reason) for change in compared.changes for reason in change.regressions]
    for key, reason in worse:
        print(f"worse: {key}: {reason}", file=sys.stderr)
    for reason in compared.unreadable:
        print(f"not compared: {reason}", file=sys.stderr)
    return FAILED if worse or compared.unreadable else 0


def is_changed(change: Change) -> bool:
    """Whether samples differ, or a metric does beyond its interval."""
    apart = any(interval is not None and not interval[0] <= 1 <= interval[1] for _, interval in change.ratios.values())
    return bool(apart or change.samples is None or change.samples.first)


def table(changes: Sequence[Change]) -> Table:
    """A line for each cell that changed."""
    shown = Table("cell", "prompts", "samples", *(f"{name}, B ÷ A" for name in METRICS))
    for change in changes:
        samples = change.samples
        difference = "other models" if samples is None else samples.first or "equal"
        shown.add_row(change.after.key, "–" if samples is None else str(samples.common), difference,
                      *(ratio_text(change, name) for name in METRICS))
    return shown


def ratio_text(change: Change, name: str) -> str:
    """`0.95 [0.93, 0.97]`; – where the cells do not have the metric."""
    if name not in change.ratios:
        return "–"
    ratio, interval = change.ratios[name]
    return f"{ratio:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def counts(compared: Comparison, changed: int) -> str:
    """How many cells were compared, changed, or are in only one store."""
    samples = [change.samples for change in compared.changes if change.samples is not None]
    unhashed = sum(sample.unhashed for sample in samples)
    prompts = sum(sample.common for sample in samples)
    return (f"{len(compared.changes)} cells with {prompts} common prompts: {changed} changed; "
            f"{len(compared.only[0])} only in A, {len(compared.only[1])} only in B"
            + (f"; {unhashed} prompts without a hash on one side" if unhashed else ""))


if __name__ == "__main__":
    sys.exit(main())
