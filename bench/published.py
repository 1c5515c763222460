"""`python -m bench.published [NAME ...]`: count the papers' numbers, and print what is wrong with them.

NAME is a file of results/published without its ending, or the start of its name: mars, arc_table2. The same findings
are footnotes of the reports' tables on the papers' pairs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.commands.command import run_command
from results.reports.published import load_published
from results.reports.published_across import WITHIN, labels
from results.reports.published_findings import all_findings, notes, paper_tables
from results.store.reasons import Arguments

LEFT_OUT = """\
MARS: 356 numbers stand in Tables 1 and 2, 49 in the running text and captions, settings among them. Figure 3 (bars of
6 targets on 3 tasks) and Figure 4 (accuracy and speedup at 7 thresholds in 4 panels) print no values: none is read off
a drawing."""
"""Why fewer numbers are counted than a reader of the figures would count."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for a name that no file has."""
    parser = Arguments(prog="python -m bench.published", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="files, or the start of their names; all by default")
    args = parser.parse_args(argv)
    return run_command(lambda: show(args.names))


def show(names: Sequence[str]) -> None:
    """Print counts and findings. Raises ValueError for an unknown name."""
    tables = paper_tables()
    for name in names:
        if not any(file.startswith(name) for file in tables):
            raise ValueError(f"{name}: no such file; there are {', '.join(tables)}")
    files = [file for file in tables if not names or file.startswith(tuple(names))]
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(counts(files))
    if any(file.startswith("mars") for file in files):
        console.print(LEFT_OUT, highlight=False, markup=False)
    for file in files:
        for text, places in by_text(file).items():
            shown = "; ".join(" / ".join(place) for place in places[:3])
            more = f"; and {len(places) - 3} more" if len(places) > 3 else ""
            console.print(f"[bold]{tables[file].source}[/bold]: {shown}{more}\n  ", end="", highlight=False)
            console.print(text, highlight=False, markup=False)
    if not names:
        console.print(across())
        console.print(WITHIN, highlight=False, markup=False)
        for source, setting in settings().items():
            console.print(f"{source}: {setting}", highlight=False, markup=False)
        for note in notes().values():
            if not note.table:
                console.print(note.text, highlight=False, markup=False)


def counts(files: Sequence[str]) -> Table:
    """A line for each file, and the sums of the papers."""
    table = Table("file", "numbers", "findings", title="numbers printed in the papers", title_justify="left")
    sums: dict[str, int] = {}
    for file in files:
        paper, count = paper_tables()[file].source.partition(",")[0], len(load_published(f"{file}.csv"))
        sums[paper] = sums.get(paper, 0) + count
        table.add_row(file, str(count), str(len(by_text(file))))
    for paper, count in {**sums, "all": sum(sums.values())}.items():
        table.add_row(paper, str(count), "", style="bold")
    return table


def across() -> Table:
    """A line for each label that several papers print: each print's speedup and τ, and how far they are apart."""
    table = Table("model", "method", "task", "speedup (τ), by paper", "largest / smallest",
                  title="one label in several papers", title_justify="left")
    for label in labels(paper_tables()):
        prints = "; ".join(f"{source}{'' if row == label.method else f' ({row})'}: {speedup:.2f}×"
                           + (f" ({tau:.2f})" if tau else "") for source, row, speedup, tau in label.prints)
        table.add_row(label.model, label.method, label.task, prints, f"{label.ratio:.2f}")
    return table


def settings() -> dict[str, str]:
    """Source -> what its speedups were measured with, of the tables that `across` shows."""
    return {table.source: table.setting for table in paper_tables().values() if table.methods}


def by_text(file: str) -> dict[str, list[tuple[str, ...]]]:
    """Each finding on a file -> the places that it concerns."""
    places: dict[str, list[tuple[str, ...]]] = {}
    for key, texts in all_findings()[file].items():
        for text in texts:
            places.setdefault(text, []).append(tuple(key))
    return places


if __name__ == "__main__":
    sys.exit(main())
