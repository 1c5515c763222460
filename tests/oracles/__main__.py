"""`python -m tests.oracles [KIND …]` compares what the code gives with the frozen data; `freeze KIND` writes that.
`KIND:PART` compares only what has PART in its name."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from importlib import import_module

KINDS = ("points", "values", "reports", "prompts", "golden", "commands")
SHOWN = 20


def main() -> int:
    """Exit status: 0 all equal, 1 something differs, 2 the command is wrong."""
    words = sys.argv[1:]
    freezing, kinds = words[:1] == ["freeze"], [word for word in words if word != "freeze"]
    if unknown := [kind for kind in kinds if kind.partition(":")[0] not in KINDS]:
        print(f"{unknown[0]}: unknown; one of {', '.join(KINDS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as empty:  # what a machine has cached changes nothing
        os.environ |= {"HF_HOME": empty, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "LEEWAY_LOCK": f"{empty}/lock"}
        return max([run(kind, freezing) for kind in kinds or KINDS])


def run(word: str, freezing: bool) -> int:
    kind, _, part = word.partition(":")
    started, module = time.monotonic(), import_module(f"tests.oracles.{kind}")
    if freezing:
        module.freeze()
        return 0
    result = module.compare(part)
    print(f"{'FAIL' if result.differences else 'ok':4}  {kind}: {result.compared:,} compared, "
          f"{len(result.differences):,} differ, {time.monotonic() - started:.0f} s", flush=True)
    for line in result.differences[:SHOWN]:
        print(f"        {line}")
    return int(bool(result.differences))


if __name__ == "__main__":
    sys.exit(main())
