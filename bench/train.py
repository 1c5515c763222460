"""`python -m bench.train COMMAND`: what is learned or measured on models before methods run; conf/train_pair.yaml, …"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "pair": ("train_pair", "train the embedded pair on its own benchmarks"),
    "heads": ("train_heads", "train drafter heads for a target, in the official formats"),
    "judge": ("train_judge", "train AutoJudge's or Judge decoding's classifier"),
    "answers": ("answers", "let a target answer prompts, as training data for its drafters"),
    "calibrate": ("calibrate", "measure the constants of ARC-Decode's bounds on a target"),
}
"""Command -> its module in bench/training/commands, which is also the name of its YAML in conf/, and what it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given and given[0] in COMMANDS:
        module, _ = COMMANDS[given[0]]
        status: int = import_module(f"bench.training.commands.{module}").main(given[1:])
        return status
    listed = "\n".join(f"  {name:10} {about} (conf/{module}.yaml)" for name, (module, about) in COMMANDS.items())
    if given in (["--help"], ["-h"]):
        print(f"python -m bench.train COMMAND [key=value …]\n\n{listed}")
        return 0
    print(f"error: python -m bench.train {given[0] if given else ''}".rstrip() + f": give one of {', '.join(COMMANDS)}",
          file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
