"""`python -m bench.merge store.dir=A from=B`: add the cells of store B, a folder or tar archive, to store A
(conf/merge.yaml).

Samples that both hold are compared one by one. A cell that differs is reported and copied to A/apart/NAME-OF-B, a
separate store: `python -m bench.compare A A/apart/NAME-OF-B` shows the differences."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zlib import error as ZlibError

from pydantic import Field

from bench.config.command import FAILED, run_yaml_command
from bench.config.section import Section, validated
from bench.config.settings import Folder
from results.store.cells import Store
from results.store.merge import APART, merge
from results.store.reasons import one_line


class Merge(Section):
    """conf/merge.yaml, which explains every field."""

    store: Folder
    source: Path = Field(alias="from")


@contextmanager
def folder_of(source: Path) -> Iterator[Path]:
    """The folder of a store: `source` itself or, as long as it is read, what the archive holds under its one folder.
    Raises ValueError, one line."""
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise ValueError(f"from={source}: no such folder or archive; give the store of a run")
    with TemporaryDirectory() as made:
        folder = Path(made) / source.name
        folder.mkdir()
        try:
            with tarfile.open(source) as archive:
                archive.extractall(folder, filter=below_first)
        except (tarfile.TarError, EOFError, LZMAError, ZlibError, OSError) as error:
            raise ValueError(f"from={source}: not a whole tar archive ({one_line(error)}); give the store of a run, or "
                             "an archive made by `tar -cJf FILE store`") from error
        yield folder


def below_first(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """`member` without the first part of its path, if it may be unpacked (tarfile.data_filter)."""
    parts = PurePosixPath(member.name).parts[1:]
    return tarfile.data_filter(member.replace(name=str(PurePosixPath(*parts)), deep=False), folder) if parts else None


def run(config: Mapping[str, Any]) -> int:
    """Merge, and print the result. Returns the exit status. Raises ValueError, StoreError, one line."""
    settings = validated(Merge, config, "")
    into, source = settings.store.dir, settings.source
    if source.exists() and into.resolve() == source.resolve():
        raise ValueError(f"from={source}: is store.dir itself; give another store")
    with folder_of(source) as folder:
        merged = merge(Store(into), Store(folder))
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
