"""`python -m bench.dashboard`: a Weights & Biases workspace and report of logged runs (conf/dashboard.yaml)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from bench.config.command import Options, run_yaml_command
from bench.reports.dashboard import Addresses, save, write


class Dashboard(Options):
    """conf/dashboard.yaml, which explains every field."""

    project: str = Field(min_length=1)
    entity: str | None
    workspace: str | None
    report: str | None
    out: Path | None


def run(config: Mapping[str, Any]) -> None:
    """Save workspace and report, or write them as files. Raises ValueError, StoreError, one line."""
    given = Dashboard.from_args(config)
    addresses = Addresses(given.project, given.entity, given.workspace, given.report)
    for line in save(addresses) if given.out is None else write(addresses, given.out):
        print(line)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong or the service refused it."""
    return run_yaml_command("dashboard", run, argv)


if __name__ == "__main__":
    sys.exit(main())
