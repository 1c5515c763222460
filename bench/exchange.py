"""`python -m bench.exchange to=FORMAT|from=spec_bench`: files of other programs (conf/exchange.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from rich.table import Table
from rich.text import Text

from bench.commands.command import StoreOptions, run_yaml_command
from bench.config.errors import ConfigError
from bench.run.console import console
from results.exchange.base import measured_sources
from results.exchange.imported import bring_in
from results.store.cells import Store
from results.store.errors import printable
from results.store.files import check_writable

if TYPE_CHECKING:
    from results.exchange.imported import Count, ImportedCell

WRITTEN, READ = ("lm_eval", "parquet", "spec_bench"), ("spec_bench",)
"""Formats; results/exchange/<name>.py has the code."""
FORMER = ("aiperf", "lm_eval", "vllm")
"""Formats of 0.2 that are not read any more, and but for lm_eval not written."""


class Exchange(StoreOptions):
    """conf/exchange.yaml, which explains every field."""

    to: str | None
    from_: str | None = Field(alias="from")
    cells: str
    prompts: Literal["all", "timed"] | None
    out: Path | None
    file: Path | None
    baseline: Path | None
    tokenizer: str | None
    into: Path


def run(config: Mapping[str, Any]) -> None:
    """Write the cells of a store, or read a file. Raises ValueError, StoreError, ModelError, one line."""
    settings = Exchange.from_args(config)
    if (settings.to is None) == (settings.from_ is None):
        both = "" if settings.to is None else f"to={settings.to} from={settings.from_}: two directions; "
        raise ValueError(f"{both}give {offered('to', WRITTEN)} or {offered('from', READ)}")
    if settings.to is not None:
        check_format("to", settings.to, WRITTEN)
        write(settings, settings.to)
    else:
        check_format("from", str(settings.from_), READ)
        read(settings)


def offered(direction: str, names: Sequence[str]) -> str:
    return f"{direction}={'|'.join(names)}"


def check_format(direction: str, name: str, names: Sequence[str]) -> None:
    """Raises ValueError for a format that is not there."""
    if name in names:
        return
    if name in FORMER:
        reason = "removed; 0.2 was the last version that had it"
    elif name == "parquet":
        reason = "is only written; read it with datasets.load_dataset"
    else:
        reason = "no such format"
    raise ValueError(f"{direction}={name}: {reason}; there is {offered(direction, names)}")


def write(settings: Exchange, name: str) -> None:
    """Write the cells of a store, and name each file."""
    store = settings.opened()
    out = Path("outputs", "exchange", name) if settings.out is None else settings.out
    check_writable(out, "out")
    # speed.py needs the wall time of every question
    prompts = settings.prompts or ("timed" if name == "spec_bench" else "all")
    sources = (source for source in measured_sources(Store(settings.store.dir), prompts, score_of)
               if fnmatchcase(source.name, settings.cells))
    files = 0
    for file in import_module(f"results.exchange.{name}").write(sources, out):
        left = f", {file.left_out} left out: they lack what the format requires" if file.left_out else ""
        print(printable(f"{file.path}: {file.answers}{left}"))
        files += 1
    if not files:
        raise ValueError(f"store.dir={store.root}: no cell with answers matches cells={settings.cells}; "
                         "python -m bench.status shows what the store holds")


def score_of(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the score of a cell with this configuration, and whether it is 0 or 1; "score" where this version
    cannot read it."""
    from bench.config.cell import Cell  # torch, which a refused command should not cost

    try:
        task = Cell.parsed({**config, "n": None, "timed": 0}).load_task()
    except ConfigError:
        return "score", False
    return task.metric, task.proportion


def read(settings: Exchange) -> None:
    """Read a file of Spec-Bench or EAGLE, and print its numbers."""
    if settings.file is None:
        raise ValueError("from=spec_bench: give the file to read, file=FILE")
    check_writable(settings.into, "into")
    count = None if settings.tokenizer is None else counter(settings.tokenizer)
    path, cells, failed = bring_in(settings.into, settings.file, settings.baseline, count)
    print(printable(f"{settings.file}: imported from spec_bench, not measured here"))
    terminal = console()
    terminal.print(table(cells))
    if any(cell.speed_script for cell in cells):
        print("What the benchmark's own script computes (docs/exchange.md):")
        terminal.print(script_table(cells))
    if failed:
        print(f"left out: {failed} × Spec-Bench wrote ERROR in place of a turn")
    print(printable(f"imported: {path}"))


def counter(source: str) -> Count:
    """Counts the tokens of a text with a checkpoint's tokenizer. Raises ModelError."""
    from methods.engine.texts import token_texts  # only the restated speed script takes it

    return token_texts(source).count


def table(cells: Sequence[ImportedCell]) -> Table:
    """The numbers of an imported file with their intervals."""
    rows = []
    for cell in cells:
        numbers: dict[str, tuple[float | None, Sequence[float] | None, str]] = {
            "τ": (cell.tau, cell.tau_ci95, ".2f"), "tokens/s": (cell.tokens_per_s, cell.tokens_per_s_ci95, ".1f"),
            "baseline": (cell.baseline_tokens_per_s, cell.baseline_tokens_per_s_ci95, ".1f"),
            "speedup": (cell.speedup, cell.speedup_ci95, ".2f")}
        known = {name: text for name, number in numbers.items() if (text := _text(*number))}
        rows.append({"task": cell.task, "prompts": f"{cell.n:,}", **known})
    return drawn(rows)


def script_table(cells: Sequence[ImportedCell]) -> Table:
    """What the format's own script computes."""
    return drawn([{"task": cell.task} | {name.replace("_per_s", "/s").replace("_", " "): f"{value:.2f}"
                                         for name, value in cell.speed_script.items()} for cell in cells])


def drawn(rows: Sequence[Mapping[str, str]]) -> Table:
    """A table with the columns that a row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    made = Table()
    for column in columns:
        made.add_column(Text(column), justify="left" if column == "task" else "right")
    for row in rows:
        made.add_row(*(Text(row.get(column, "–")) for column in columns))
    return made


def _text(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """A number with its interval; empty for None."""
    shown = "" if interval is None else f" [{interval[0]:{form}}, {interval[1]:{form}}]"
    return "" if value is None else f"{value:{form}}{shown}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command or a file is wrong."""
    return run_yaml_command("exchange", run, argv)


if __name__ == "__main__":
    sys.exit(main())
