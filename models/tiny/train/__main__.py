"""`python -m models.tiny.train pair|rows`: train the embedded pair, freeze the rows of its
benchmarks."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from itertools import islice

from bench.commands.command import run_yaml_command
from models.tiny.train.texts import BENCHMARKS, prompts
from tasks.mini import FOLDER, ROWS


def write_rows() -> None:
    """Write tasks/mini/rows: the first prompts of each split of each benchmark (minutes)."""
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
    name, *given = list(sys.argv[1:] if argv is None else argv) or [""]
    if name == "pair":
        from models.tiny.train.pair import run

        return run_yaml_command("train_pair", run, given)
    if name == "rows" and not given:
        write_rows()
        return 0
    print(
        f"error: models.tiny.train {name or 'without a command'}: give pair "
        "(conf/train_pair.yaml) or rows",
        file=sys.stderr,
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
