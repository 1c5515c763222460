"""`python -m bench.merge store.dir=A from=B`: add the cells of store B, a folder or tar archive, to store A
(conf/merge.yaml).

Samples that both hold are compared one by one. A cell that differs is reported and copied to A/apart/NAME-OF-B, a
separate store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from bench.commands.command import FAILED, StoreOptions, run_yaml_command
from results.store.cells import Store
from results.store.files import check_writable, remove_leftovers
from results.store.merge import UNPACKED, merge, unpacked


class Merge(StoreOptions):
    """conf/merge.yaml, which explains every field."""

    source: Path = Field(alias="from")
    max_bytes: int = Field(ge=1)


@contextmanager
def folder_of(source: Path, beside: Path, max_bytes: int) -> Iterator[tuple[Path, list[str]]]:
    """The folder of a store: `source` itself or, as long as it is read, the cells of an archive; and what was left out
    of it. Raises ValueError, StoreError, one line."""
    if source.is_dir():
        yield source, []
    elif source.is_file():
        check_writable(beside, "store.dir")
        with unpacked(source, beside, max_bytes) as (folder, others):
            yield folder, others
    else:
        raise ValueError(f"from={source}: no such folder or archive; give the store of a run")


def run(config: Mapping[str, Any]) -> int:
    """Merge, and print the result. Returns the exit status. Raises ValueError, StoreError, one line."""
    settings = Merge.from_args(config)
    into, source = settings.store.dir, settings.source
    if source.exists() and into.resolve() == source.resolve():
        raise ValueError(f"from={source}: is store.dir itself; give another store")
    remove_leftovers(into / UNPACKED)
    with folder_of(source, into, settings.max_bytes) as (folder, others):
        if not (other := Store(folder)).cells():
            raise ValueError(f"from={source}: holds no cell (no CELL/cell.yaml); give the store of a run")
        merged = merge(Store(into), other)
    for key, reason in merged.apart.items():
        print(f"kept apart: {key}: {reason}", file=sys.stderr)
    for key, reason in merged.refused.items():
        print(f"left alone: {key}: {reason}", file=sys.stderr)
    prompts = sum(merged.extended.values())
    print(f"{into}: {len(merged.added)} cells added, {len(merged.extended)} extended by {prompts} prompts, "
          f"{len(merged.equal)} equal, {len(merged.apart)} kept apart, {len(merged.refused)} left alone")
    if unknown := [*others, *merged.unknown]:
        print(f"not copied: {len(unknown)} files that no cell has, first {unknown[0]}")
    if merged.place is not None:
        print(f"cells kept apart: {merged.place}")
    return FAILED if merged.apart or merged.refused else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all cells are in the store, 1 one is kept apart or left alone, 2 the command is wrong."""
    return run_yaml_command("merge", run, argv)


if __name__ == "__main__":
    sys.exit(main())
