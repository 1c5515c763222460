"""`python -m bench.exchange to=FORMAT|from=spec_bench`: files of other programs
(conf/exchange.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from rich.table import Table

from bench.commands.command import StoreOptions, run_yaml_command
from bench.config.errors import ConfigError
from bench.config.section import check_known
from bench.run.console import console
from results.exchange import spec_bench
from results.exchange.base import measured_sources
from results.store.errors import printable
from results.store.files import check_writable, replace_text
from results.store.records import json_text

if TYPE_CHECKING:
    from results.exchange.spec_bench import Task

WRITTEN = ("parquet", "spec_bench")
"""Formats; results/exchange/<name>.py has the code. That of Spec-Bench is also read."""
COLUMNS = {
    "τ": ("tau", ".2f"),
    "tokens/s": ("tokens_per_s", ".1f"),
    "baseline": ("baseline_tokens_per_s", ".1f"),
    "speedup": ("speedup", ".2f"),
}


class Exchange(StoreOptions):
    """conf/exchange.yaml, which explains every field."""

    to: str | None
    from_: str | None = Field(alias="from")
    cells: str
    prompts: Literal["all", "timed"] | None
    out: Path | None
    file: Path | None
    baseline: Path | None


def run(config: Mapping[str, Any]) -> None:
    """Write the cells of a store, or read a file. Raises ValueError, StoreError, one line."""
    settings = Exchange.from_args(config)
    if (settings.to is None) == (settings.from_ is None):
        both = (
            ""
            if settings.to is None
            else f"to={settings.to} from={settings.from_}: two directions; "
        )
        raise ValueError(f"{both}give to={'|'.join(WRITTEN)} or from=spec_bench")
    if settings.to is not None:
        check_known("to", settings.to, WRITTEN)
        write(settings, settings.to)
    else:
        check_known("from", settings.from_, ["spec_bench"])
        read(settings)


def write(settings: Exchange, name: str) -> None:
    """Write the cells of a store in a format, and print the files."""
    out = settings.out or Path("outputs", "exchange", name)
    store = settings.opened()
    check_writable(out, "out")
    # speed.py needs the wall time of every question
    prompts = settings.prompts or ("timed" if name == "spec_bench" else "all")
    sources = (
        source
        for source in measured_sources(store, prompts, score_of)
        if fnmatchcase(source.name, settings.cells)
    )
    files = 0
    for file in import_module(f"results.exchange.{name}").write(sources, out):
        left = (
            f", {file.left_out} left out: they lack what the format requires"
            if file.left_out
            else ""
        )
        print(printable(f"{file.path}: {file.answers}{left}"))
        files += 1
    if not files:
        raise ValueError(
            f"store.dir={store.root}: no cell with answers matches cells={settings.cells}; "
            "`ls` of it shows the names of its cells"
        )


def score_of(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the score of a cell with this configuration, and whether it is 0 or 1; "score"
    where this version cannot read it."""
    from bench.config.cell import Cell  # torch, which a refused command should not cost

    try:
        task = Cell.parsed({**config, "n": None, "timed": 0}).load_task()
    except ConfigError:
        return "score", False
    return task.metric, task.proportion


def read(settings: Exchange) -> None:
    """Read a file of Spec-Bench or EAGLE, and print its numbers; with `out`, write them as JSON,
    too."""
    if settings.file is None:
        raise ValueError("from=spec_bench: give the file to read, file=FILE")
    if settings.out is not None:
        check_writable(settings.out, "out")
    tasks, failed = spec_bench.read(settings.file, settings.baseline)
    print(printable(f"{settings.file}: imported from spec_bench, not measured here"))
    console().print(table(tasks))
    if failed:
        print(f"left out: {failed} × Spec-Bench wrote ERROR in place of a turn")
    if settings.out is not None:
        path = settings.out / f"{settings.file.stem}.json"
        replace_text(path, json_text(tasks, indent=1) + "\n")
        print(printable(f"written: {path}"))


def table(tasks: Sequence[Task]) -> Table:
    """The numbers of an imported file with their intervals."""
    made = Table("task")
    for header in ("prompts", *COLUMNS):
        made.add_column(header, justify="right")
    for task in tasks:
        cells = []
        for name, form in COLUMNS.values():
            value, interval = task[name], task[f"{name}_ci95"]
            shown = "" if interval is None else f" [{interval[0]:{form}}, {interval[1]:{form}}]"
            cells.append("–" if value is None else f"{value:{form}}{shown}")
        made.add_row(task["task"], f"{task['n']:,}", *cells)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command or a file is wrong."""
    return run_yaml_command("exchange", run, argv)


if __name__ == "__main__":
    sys.exit(main())
