"""Attack the benchmark: `python -m tests.attack [--seed N] [--share S] [PART ...]`, or `make attack`.

Prints one table, that of docs/attack.md. Exit status 1 after a defect."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline",
         "WANDB_SILENT": "true"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="names of parts; none: all")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--share", type=float, default=1.0, help="of each part's budget")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="leeway-attack-") as folder:
        os.environ.update(QUIET, HF_HOME=f"{folder}/hub", XDG_CACHE_HOME=f"{folder}/cache", TMPDIR=folder)
        tempfile.tempdir = folder
        from tests.attack.campaign import attack  # the environment must be set before torch is imported

        return attack(given.parts, given.seed, given.share, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
