"""`python -m bench.train COMMAND`: train or calibrate what methods need."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from bench.commands.command import run_yaml_command

COMMANDS = {
    "heads": ("train_heads", "train drafter heads for a target, in the official formats"),
    "judge": ("train_judge", "train AutoJudge's or Judge decoding's classifier"),
    "mismatches": (
        "mismatches",
        "record answers to training prompts, and where a draft model differs",
    ),
    "calibrate": ("calibrate", "measure the constants of ARC-Decode's bounds on a target"),
    "thresholds": ("thresholds", "choose FSD's draft length and thresholds on a task (Appendix D)"),
}
"""Command -> the name of its YAML in conf/ and of its module in bench/training/commands, and what
it does."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    name, *given = list(sys.argv[1:] if argv is None else argv) or [""]
    if name in COMMANDS:
        yaml, _ = COMMANDS[name]

        def run(config: Mapping[str, Any]) -> None:
            import_module(f"bench.training.commands.{yaml}").run(config)

        return run_yaml_command(yaml, run, given)
    if name in ("--help", "-h"):
        print("python -m bench.train COMMAND [key=value …]\n")
        print(
            *(
                f"  {name:11} {about} (conf/{yaml}.yaml)"
                for name, (yaml, about) in COMMANDS.items()
            ),
            sep="\n",
        )
        return 0
    hint = (
        "; the embedded pair is trained by python -m models.tiny.train pair"
        if name == "pair"
        else ""
    )
    print(
        f"error: bench.train {name or 'without a command'}: give one of "
        f"{', '.join(COMMANDS)}{hint}",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
