"""`python -m bench.margins pair=NAME task=NAME`: how sure a pair's target is, as a page (conf/margins.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.commands.command import run_yaml_command
from bench.training import margins


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_yaml_command("margins", margins.run, argv)


if __name__ == "__main__":
    sys.exit(main())
