"""`python -m bench.cost to=cost/NAME.yaml [KEY=VALUE …]`: measure the cost profile of a pair on
this machine and write it, in conf (docs/cost.md); the other overrides are those of `python -m
bench`.

With --check DIR, a store of timed cells of this machine, it says how well the profile predicts
them."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import PositiveInt

from bench.commands.command import Options, run_command
from bench.config.cost_file import save
from bench.run.cost_clock import Clocks
from results.metrics.adds import answer_seconds
from results.metrics.cost import check_of, stated
from results.store.cells import Store
from results.store.errors import Arguments, StoreError
from results.store.files import check_writable
from results.store.sample import Compared, compare

if TYPE_CHECKING:
    from results.metrics.cost import Profile

log = logging.getLogger(__name__)


class Measuring(Options):
    """The command's own options.

    to       file of the profile, in conf unless its path is absolute.
    prompts  of each method.
    batches  rows that decode together.
    check    a store of timed cells of this machine, which the profile then predicts.
    """

    to: Path
    prompts: PositiveInt
    batches: tuple[PositiveInt, ...]
    check: Path | None


def predictions(store: Store, profile: Profile, pair: str) -> Iterator[tuple[float, float]]:
    """Answer speedup of the timed prompts of each complete cell of the pair that drafts and was
    timed on the profile's machine: as the profile predicts it, and as measured. A warning names
    cells that cannot be priced or read."""
    for entry in store.entries():
        folder = store.cell(entry.key)
        config = folder.config() or {} if entry.complete else {}
        if (
            not config
            or config["pair"]["name"] != pair
            or config["drafter"]["name"] == "none"
            or profile.machine != processor(folder.environment() or {})
        ):
            continue
        try:
            base = {record.id: record for record in store.cell(config["baseline"]).samples()}
            records = compare(folder.samples(), base, {row.id: row for row in folder.timed()})
            timed = [
                record
                for record in records
                if isinstance(record, Compared) and record.timed is not None
            ]
            there = [
                record
                for record in Clocks.of(profile, config).modelled(timed)
                if isinstance(record, Compared)
            ]
        except StoreError as error:
            log.warning("left out: %s: %s", folder.key, error)
            continue
        if timed:
            yield answer_speedup(there), answer_speedup(timed)


def answer_speedup(timed: Sequence[Compared]) -> float:
    """Seconds of plain decoding over own, prefill included, sum over sum."""
    base, own = np.array([answer_seconds(pair) for pair in timed], float).sum(0)
    return float(base / own)


def processor(environment: Mapping[str, Any]) -> str | None:
    """What decoded: the accelerator of an environment record, else its processor."""
    found: dict[str, Any] = environment.get("accelerator") or {}
    name: str | None = found.get("name") or (environment.get("cpu") or {}).get("model")
    return name


def write_profile(options: Measuring, overrides: Sequence[str]) -> None:
    """Raises ValueError, ModelError, StoreError."""
    from bench.run.cost_profile import measure

    file = Path("conf") / options.to
    if file.suffix != ".yaml":
        raise ValueError(f"to={options.to}: must be a YAML file, such as to=cost/mine.yaml")
    check_writable(file.parent, "to")
    if options.check is not None and not options.check.is_dir():
        raise ValueError(
            f"--check {options.check}: no such folder; give the store of a run on this machine"
        )
    pair, profile = measure(
        overrides, options.prompts, options.batches, lambda text: print(text, flush=True)
    )
    if options.check is not None:
        found = check_of(list(predictions(Store(options.check), profile, pair)))
        profile = profile.model_copy(update={"check": found})
    save(file, profile)
    print(f"written: {file}; {stated(profile)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(
        prog="python -m bench.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--prompts", default=6, help="of each method")
    parser.add_argument("--batches", default="1", help="rows that decode together, such as 1,4,16")
    parser.add_argument(
        "--check", metavar="DIR", help="a store whose timed cells the profile then predicts"
    )
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    to = [line.removeprefix("to=") for line in overrides if line.startswith("to=")]
    if len(to) != 1:
        parser.error("give to=cost/NAME.yaml, the file of the profile, once")
    given |= {"batches": given["batches"].split(","), "to": to[0]}
    own = [line for line in overrides if not line.startswith("to=")]
    return run_command(lambda: write_profile(Measuring.from_args(given), own))


if __name__ == "__main__":
    sys.exit(main())
