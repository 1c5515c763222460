"""`python -m bench.merge store.dir=A from=B`: add the cells of store B to store A (conf/merge.yaml).

Samples that both hold are compared one by one. A cell that differs is reported and copied to A/apart/NAME-OF-B, a
separate store: `python -m bench.compare A A/apart/NAME-OF-B` shows the differences."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from bench.config.command import FAILED, run_yaml_command
from bench.config.section import Section, validated
from bench.config.settings import Folder
from results.store.cells import Store
from results.store.merge import APART, merge


class Merge(Section):
    """conf/merge.yaml, which explains every field."""

    store: Folder
    source: Path = Field(alias="from")


def run(config: Mapping[str, Any]) -> int:
    """Merge, and print the result. Returns the exit status. Raises ValueError, StoreError, one line."""
    settings = validated(Merge, config, "")
    into, source = settings.store.dir, settings.source
    if not source.is_dir():
        raise ValueError(f"from={source}: no such folder; give the store of a run")
    if into.resolve() == source.resolve():
        raise ValueError(f"from={source}: is store.dir itself; give another store")
    merged = merge(Store(into), Store(source))
    for key, reason in merged.apart.items():
        print(f"kept apart: {key}: {reason}", file=sys.stderr)
    for key, reason in merged.refused.items():
        print(f"left alone: {key}: {reason}", file=sys.stderr)
    prompts = sum(merged.extended.values())
    print(f"{into}: {len(merged.added)} cells added, {len(merged.extended)} extended by {prompts} prompts, "
          f"{len(merged.equal)} equal, {len(merged.apart)} kept apart, {len(merged.refused)} left alone")
    if merged.apart:
        print(f"cells kept apart: {into / APART / source.resolve().name}")
    return FAILED if merged.apart or merged.refused else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all cells are in the store, 1 one is kept apart or left alone, 2 the command is wrong."""
    return run_yaml_command("merge", run, argv)


if __name__ == "__main__":
    sys.exit(main())
