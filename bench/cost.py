"""`python -m bench.cost to=cost/NAME.yaml [KEY=VALUE …]`: measure the cost profile of a pair on
this machine and write it, in conf (docs/cost.md); the other overrides are those of `python -m
bench`.

A pair of random weights costs what a real one of its shape does: pair=local
pair.target=random:FOLDER, with a config.json in the folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import PositiveInt

from bench.cli.command import Options, run_command
from bench.config.cost_file import save
from bench.config.paths import CONF
from results.metrics.cost import stated
from results.store.errors import Arguments
from results.store.files import check_writable


class Measuring(Options):
    """The command's own options.

    to       file of the profile, in conf unless its path is absolute.
    prompts  of each method.
    batches  rows that decode together.
    """

    to: Path
    prompts: PositiveInt
    batches: tuple[PositiveInt, ...]


def write_profile(options: Measuring, overrides: Sequence[str]) -> None:
    """Raises ValueError, ModelError, StoreError."""
    from bench.run.cost_profile import measure

    file = CONF / options.to
    if file.suffix != ".yaml":
        raise ValueError(f"to={options.to}: must be a YAML file, such as to=cost/mine.yaml")
    check_writable(file.parent, "to")
    profile = measure(
        overrides, options.prompts, options.batches, lambda text: print(text, flush=True)
    )
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
    words = parser.parse_intermixed_args(argv)
    targets = [word.removeprefix("to=") for word in words.overrides if word.startswith("to=")]
    if len(targets) != 1:
        parser.error("give to=cost/NAME.yaml, the file of the profile, once")
    options = {"to": targets[0], "prompts": words.prompts, "batches": words.batches.split(",")}
    overrides = [word for word in words.overrides if not word.startswith("to=")]
    return run_command(lambda: write_profile(Measuring.from_args(options), overrides))


if __name__ == "__main__":
    sys.exit(main())
