"""`python -m models.train COMMAND`: train drafter heads, what rules learn, the embedded pair."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

from bench.cli.command import run_yaml_command

COMMANDS = {
    "heads": ("train_heads", "heads.command", "train drafter heads, in the official formats"),
    "judge": ("train_judge", "rules.judge", "train AutoJudge's or Judge decoding's classifier"),
    "calibrate": (
        "calibrate",
        "rules.calibrate",
        "measure the constants of ARC-Decode's bounds on a target",
    ),
    "thresholds": (
        "thresholds",
        "rules.thresholds",
        "choose FSD's draft length and thresholds on a task (Appendix D)",
    ),
    "pair": ("train_pair", "pair.command", "train the embedded pair"),
}
"""Command -> its YAML in conf/, its module in models/train, and what it does. The command `rows`
has no options."""
ROWS_ABOUT = "write the rows of the embedded benchmarks to tasks/mini/rows (minutes)"


def write_rows() -> None:
    """Write tasks/mini/rows: the first prompts of each split of each benchmark."""
    from models.train.texts import BENCHMARKS, prompts
    from tasks.mini import FOLDER, ROWS

    for name in BENCHMARKS:
        file = FOLDER / f"{name}.jsonl.gz"
        drawn = [
            prompt
            for split in ("test", "calibration", "train")
            for prompt in islice(prompts(name, split), ROWS)
        ]
        lines = [
            json.dumps(
                {"id": prompt.id, "turns": list(prompt.turns), "reference": prompt.reference},
                ensure_ascii=False,
            )
            + "\n"
            for prompt in drawn
        ]
        file.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
        print(file)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    name, *words = list(sys.argv[1:] if argv is None else argv) or [""]
    if name in COMMANDS:
        yaml, module, _ = COMMANDS[name]

        def run(config: Mapping[str, Any]) -> None:
            import_module(f"models.train.{module}").run(config)

        return run_yaml_command(yaml, run, words)
    if name == "rows" and not words:
        write_rows()
        return 0
    if name in ("--help", "-h"):
        print("python -m models.train COMMAND [key=value …]\n")
        for command, (yaml, _, about) in COMMANDS.items():
            print(f"  {command:11} {about} (conf/{yaml}.yaml)")
        print(f"  {'rows':11} {ROWS_ABOUT}")
        return 0
    print(
        f"error: models.train {name or 'without a command'}: give one of "
        f"{', '.join(COMMANDS)}, or rows alone",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
