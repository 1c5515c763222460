"""`python -m bench.merge store.dir=A from=B`: add the cells of store B to store A
(conf/merge.yaml).

Cells that A lacks are copied. A cell of both whose answers differ is refused."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from bench.cli.command import FAILED, StoreOptions, run_yaml_command
from results.store.cells import Store
from results.store.merge import merge


class Merge(StoreOptions):
    """conf/merge.yaml, which explains every field."""

    source: Path = Field(alias="from")


def run(config: Mapping[str, Any]) -> int:
    """Merge, and print the result. Returns the exit status. Raises ValueError, StoreError, one
    line."""
    settings = Merge.from_args(config)
    into, source = settings.store.dir, settings.source
    if not source.is_dir():
        raise ValueError(
            f"from={source}: no such folder; give the store of a run, of an archive what `tar "
            "-xf` makes of it"
        )
    if into.resolve() == source.resolve():
        raise ValueError(f"from={source}: is store.dir itself; give another store")
    other = Store(source)
    if not other.cells():
        raise ValueError(
            f"from={source}: holds no cell (no CELL/cell.yaml); give the store of a run"
        )
    merged = merge(Store(into), other)
    for key, reason in merged.refused.items():
        print(f"refused: {key}: {reason}", file=sys.stderr)
    print(
        f"{into}: {len(merged.added)} cells added, {len(merged.equal)} equal, "
        f"{len(merged.refused)} refused"
    )
    return FAILED if merged.refused else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all cells are in the store, 1 one is refused, 2 the command is wrong."""
    return run_yaml_command("merge", run, argv)


if __name__ == "__main__":
    sys.exit(main())
