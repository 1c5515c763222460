"""A full disk: the run ends with a line that names it, leaves no half-written file, and resumes where there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.attack import warm
from tests.attack.part import Field, Trial
from tests.attack.stores import Decoded, decoded, difference, doubled, leftovers

LIMIT = 120.0
PAGES, INODES = range(1, 17), range(2, 17)
"""Sizes of the disk: pages of 4 KiB, and numbers of files and folders."""


def missing() -> str:
    """Why no small file system can be mounted here; empty where it can."""
    if os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(tried, capture_output=True, text=True).stderr.strip()


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs of this size."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def trials(field: Field) -> Iterator[Trial]:
    """Every size, in random order."""
    undisturbed = field.folder / "undisturbed"
    ended = _start(undisturbed, field.folder).ended(LIMIT)
    if ended.status != 0:
        raise RuntimeError(f"status {ended.status} with room enough: {ended.err[-300:]}")
    expected = decoded(undisturbed / "store")
    sizes = [*(f"size={4 * pages}k" for pages in PAGES), *(f"size=64m,nr_inodes={inodes}" for inodes in INODES)]
    for size in field.draw.sample(sizes, len(sizes)):
        with disk(field.folder / "disk", size) as output:
            yield Trial(size, _fault(output, field.folder, expected))


def _start(output: Path, folder: Path) -> warm.Running:
    return warm.start(["bench", "-m", "method=sps,ar", "n=3", "trace=true", "decoding.max_new_tokens=12",
                       "engine.threads=1", f"output.dir={output}"], folder / "log")


def _fault(output: Path, folder: Path, expected: Decoded) -> str:
    store = output / "store"
    ended = _start(output, folder).ended(LIMIT)
    if ended.traceback or ended.status is None:
        return f"status {ended.status}: {(ended.err.splitlines() or ['no end'])[-1]}"
    if ended.status != 0 and "No space left" not in ended.err:
        return f"status {ended.status} without naming the full disk: {' / '.join(ended.errors)[:300]}"
    if fault := difference(decoded(store), expected, complete=ended.status == 0) or doubled(store) or leftovers(store):
        return f"full: {fault}"
    subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=100000", output], check=True)
    ended = _start(output, folder).ended(LIMIT)
    if ended.status != 0:
        return f"status {ended.status} with room again: {' / '.join(ended.errors)[:300]}"
    return difference(decoded(store), expected) or doubled(store) or leftovers(store)
