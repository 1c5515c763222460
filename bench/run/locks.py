"""What this process holds: cells, with the numbers of prompts that are asked of each, and the
machine."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import resource
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bench.config.code import SCORER, code_of
from bench.config.errors import ConfigError
from bench.run.requested_cell import folder_of, has_other_scores
from results.store.errors import Locked, StoreError, format_exception

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from results.store.cells import CellFolder, Store

log = logging.getLogger(__name__)
LOCK, DEFAULT = "LEEWAY_LOCK", "/tmp/leeway.lock"
"""The environment variable that names the file that processes of one machine lock; the kernel drops
a lock when its process dies."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


def prompts_asked(cell: Cell) -> float:
    """How many prompts the cell asks for; infinity for all."""
    return math.inf if cell.n is None else cell.n


@dataclass(slots=True)
class Claim:
    """A cell that this process may write.

    cells    the cell as the command asks for it, once for each number of prompts; at least one.
    folder   locked.
    baseline the folder of its baseline.
    started  its configuration and environment are on disk.
    """

    cells: list[Cell]
    folder: CellFolder
    baseline: str
    started: bool = False

    @property
    def cell(self) -> Cell:
        """The cell that asks for most prompts."""
        return max(self.cells, key=prompts_asked)

    @property
    def timed_prompts(self) -> int:
        """The largest number of timed prompts asked for."""
        return max(cell.timed_prompts for cell in self.cells)

    def start(self) -> bool:
        """Write what is known before anything is decoded, once, what this run asks for too. False,
        with the reason in the folder, where that fails."""
        if not self.started:
            try:
                self.write_config()
                prompts = len(self.cell.prompts())
                run = {"prompts": prompts, "timed": min(self.timed_prompts, prompts)}
                self.folder.write_environment({**self.cell.environment(sys.argv), "run": run})
            # a model's file that is missing, say: only this cell cannot run
            except Exception as error:
                self.fail(error)
                return False
        self.started = True
        return True

    def write_config(self) -> None:
        """Write cell.yaml; answers that are there keep the record of their code. Raises
        StoreError where the settings were edited."""
        before = self.folder.config() or {}
        config = {**self.cell.record(), "baseline": self.baseline}
        if self.folder.samples():
            del config["code"]
            if "code" in before:
                config["code"] = before["code"]
        self.folder.write_config(config)

    def score_anew(self) -> None:
        """Forget the scores that other code of the scorer made; the pass makes them again."""
        try:
            if not has_other_scores(self.cell, self.folder):
                return
            log.warning(
                "task=%s: stored scores are of other code of its scorer: the answers stay, and are "
                "scored again",
                self.cell.task.name,
            )
            self.folder.forget_scores()
            config = self.folder.config() or {}
            scorer = {SCORER: code_of(self.cell)[SCORER]}
            self.folder.write_config(config | {"code": config["code"] | scorer})
        except StoreError as error:
            self.fail(error)

    def fail(self, error: Exception | str) -> None:
        """Record why the cell cannot be completed."""
        self.folder.write_failure(error if isinstance(error, str) else format_exception(error))
        log.debug("%s failed", self.cell.name, exc_info=True)


def by_group(cells: Iterable[Cell]) -> list[list[Cell]]:
    """The groups that can be timed beside one baseline, those of one pair together, so that its
    models are loaded once; else in the order of their first cell."""
    groups: dict[str, list[Cell]] = {}
    pairs: dict[Pair, int] = {}
    for cell in cells:
        groups.setdefault(cell.group_key, []).append(cell)
        pairs.setdefault(cell.pair, len(pairs))
    return sorted(groups.values(), key=lambda group: pairs[group[0].pair])


def claim(
    groups: Iterable[Sequence[Cell]], claims: dict[str, Claim], store: Store, locks: ExitStack
) -> dict[str, str]:
    """Lock the cells of each group, all or none of them, and add them to `claims`, by name. Returns
    why the others are left alone, by name. Raises StoreError."""
    refused: dict[str, str] = {}
    _allow_open_files()
    for group in groups:
        wanted = sorted((cell for cell in group if cell.name not in claims), key=prompts_asked)
        folders = {cell.name: folder_of(cell, store) for cell in wanted}  # for the largest n
        baselines = {cell.name: folder_of(cell.baseline(), store).key for cell in wanted}
        with ExitStack() as group_locks:
            try:
                # every process takes them in this order
                for _, folder in sorted(folders.items()):
                    group_locks.enter_context(folder.lock())
            except Locked as error:
                refused |= dict.fromkeys((cell.name for cell in group), str(error))
                continue
            locks.enter_context(group_locks.pop_all())
        for name, folder in folders.items():
            folder.clear_failure()
            claims[name] = Claim([], folder, baselines[name])
        for cell in group:
            claims[cell.name].cells.append(cell)
    return refused


def _allow_open_files() -> None:
    """Every lock is an open file; the usual soft limit of 1024 is below what report=all needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(frozen=True, slots=True)
class Stamp:
    """The host, its boot, when the measuring session began (ISO 8601, UTC), whether other workers
    run on the host meanwhile, and the CPU threads of the clock, once they are chosen, as `Timed`
    records them."""

    host: str
    boot: str
    started: str
    shared: bool
    threads: int | None = None

    @classmethod
    def now(cls, shared: bool) -> Stamp:
        boot = BOOT.read_text().strip() if BOOT.exists() else ""
        return cls(
            socket.gethostname(), boot, datetime.now(UTC).isoformat(timespec="milliseconds"), shared
        )


@contextmanager
def machine(*, alone: bool) -> Iterator[None]:
    """Hold the machine. Alone for a timed pass: no other pass of Leeway runs meanwhile; else for a
    quality pass: others may decode too, but nobody is timed. Raises ConfigError for a wrong
    LEEWAY_LOCK."""
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    path = Path(os.environ.get(LOCK) or DEFAULT)
    if not path.parent.is_dir():
        raise ConfigError(f"{LOCK}={path}: no such folder; give a file in a folder that exists")
    # without O_CREAT where it exists: /tmp refuses that for another user's file
    file = os.open(path, os.O_RDONLY if path.exists() else os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning(
                "waiting for another run of Leeway on this machine, which %s (`fuser -v %s` "
                "names it; timed=0 does not wait for decoding)",
                "decodes" if alone else "is timed",
                path,
            )
            fcntl.flock(file, kind)
        yield
    finally:
        os.close(file)
