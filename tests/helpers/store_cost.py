"""`python -m tests.helpers.store_cost FOLDER [--cells 100000] [--points 1000]`: what a large store costs, in seconds.

Makes a store of complete cells in FOLDER, unless it is there, then measures what commands do with it: docs/scale.md."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.config.compose import composer
from bench.reports.plan import Plan
from bench.run.session import Session
from results.reports.axes import Entry
from results.reports.spec import TableSpec
from results.store.cells import Store
from results.store.status import rotations
from tests.helpers.generated_store import write_cells, write_store

PROMPTS = 10


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the seconds that the block takes, and those of the processor, which other processes slow down little."""
    began, worked = time.perf_counter(), time.process_time()
    yield
    print(f"{time.perf_counter() - began:8.2f} s, CPU {time.process_time() - worked:8.2f} s  {what}", flush=True)


def main() -> None:
    """Measure once; a second run finds the store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--points", type=int, default=1000)
    args = parser.parse_args()
    root: Path = args.folder / f"store-{args.cells}"
    values = ",".join(f"{0.3 + 0.6 * place / args.points:.6f}" for place in range(args.points))
    argv = ["method=mars", f"n={PROMPTS}", "timed=2", f"store.dir={root}", f"rule.theta={values}"]
    with composer() as hydra:
        import torch  # noqa: F401  its import is no part of planning

        with timed(f"compose a sweep of {args.points} points"):
            command = hydra.command(argv, multirun=True)
        with timed("their cells, checked"):
            cells = command.cells
        with timed("their names, with the models' fingerprints"):
            names = [cell.name for cell in cells]
    if not root.exists():
        with timed(f"(make {args.cells} cells with {PROMPTS} samples each, and those of the sweep)"):
            write_store(root, args.cells, PROMPTS, cells[0].record())
            write_cells(root, cells)
    with timed("list the cells"):
        keys = [cell.key for cell in Store(root).cells()]
    with timed(f"a look at each of {len(keys)} cells: its state, its answers counted"):
        entries = list(Store(root).entries())
    assert len(entries) == len(keys) and all(entry.complete for entry in entries)
    with timed("rotations, as bench.status shows them"):
        rotations(Store(root), datetime.now(UTC))
    session = Session(command.settings)
    with timed(f"completeness of the {len(names)} cells of the sweep"):
        session.check(cells)
    import bench.run.launch  # noqa: F401  as torch: what decodes is imported here

    with timed("nothing is missing: the command's passes over them, and metrics that compare cells"):
        session.complete(cells)
    with timed("their grid"):
        grid(cells, session)


def grid(cells: list[Any], session: Session) -> None:
    """A table of the sweep, from the store."""
    labels = [f"θ {place}" for place in range(len(cells))]
    axes = {"Point": tuple(Entry(label=label, overrides=(f"seed={place}",)) for place, label in enumerate(labels)),
            "Task": (Entry(label="mini_gsm", overrides=("task=mini_gsm",)),)}
    spec = TableSpec.model_validate({"name": "cost", "title": "cost", "kind": "table", "axes": axes, "rows": ["Point"],
                                     "columns": ["Task"], "values": ["tau", "speedup", "accuracy"]})
    held = Plan(spec, {(label, "mini_gsm"): cell for label, cell in zip(labels, cells, strict=True)}, {}).grid(session)
    assert all(outcome.state == "measured" for outcome in held.values())


if __name__ == "__main__":
    main()
