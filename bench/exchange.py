"""`python -m bench.exchange to=FORMAT`: a store as files of other programs (conf/exchange.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bench.cli.command import StoreOptions, run_yaml_command
from bench.config.errors import ConfigError
from results.exchange.base import Source
from results.store.errors import printable
from results.store.files import check_writable

if TYPE_CHECKING:
    from results.store.cells import Store


class Exchange(StoreOptions):
    """conf/exchange.yaml, which explains every field."""

    to: Literal["parquet", "spec_bench"]  # results/exchange/<name>.py
    cells: str
    prompts: Literal["all", "timed"] | None
    out: Path | None


def run(config: Mapping[str, Any]) -> None:
    """Write the cells of a store, and print the files. Raises ValueError, StoreError, one line."""
    settings = Exchange.from_args(config)
    out = settings.out or Path("outputs", "exchange", settings.to)
    store = settings.opened()
    check_writable(out, "out")
    # speed.py needs the wall time of every question
    prompts = settings.prompts or ("timed" if settings.to == "spec_bench" else "all")
    writer = import_module(f"results.exchange.{settings.to}")
    is_empty = True
    for path, count in writer.write(sources(store, settings.cells, prompts == "timed"), out):
        print(printable(f"{path}: {count}"))
        is_empty = False
    if is_empty:
        raise ValueError(
            f"store.dir={store.root}: no cell with answers matches cells={settings.cells}; "
            "`ls` of it shows the names of its cells"
        )


def sources(store: Store, pattern: str, timed_only: bool) -> Iterator[Source]:
    """Every cell that has answers and whose key matches. Raises StoreError."""
    for folder in store.cells():
        if fnmatchcase(folder.key, pattern) and (folder.path / "samples.jsonl").exists():
            config = folder.config() or {}
            baseline = store.cell(str(config.get("baseline", folder.key)))
            yield Source(folder, baseline, config, *score_of(config), timed_only)


def score_of(config: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the score of a cell with this configuration, and whether it is 0 or 1; "score"
    where this version cannot read it."""
    from bench.config.cell import Cell  # torch, which a refused command should not cost

    try:
        task = Cell.parsed({**config, "n": None, "timed": 0}).load_task()
    except ConfigError:
        return "score", False
    return task.metric, task.proportion


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("exchange", run, argv)


if __name__ == "__main__":
    sys.exit(main())
