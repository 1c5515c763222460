"""What one part of `bench.gpu` finds, and the machine on which it looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from results.store.errors import one_line
from results.store.files import replace_text
from results.store.records import json_text

Row = dict[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a part runs.

    device  of all tensors; on a CPU every shape is tiny.
    ends    `time.monotonic()` behind which nothing new begins.
    say     shows one line of progress.
    """

    device: torch.device
    ends: float
    say: Callable[[str], None]

    @property
    def tiny(self) -> bool:
        return self.device.type == "cpu"

    @property
    def left(self) -> float:
        """Seconds."""
        return self.ends - time.monotonic()

    def free(self) -> float:
        """Bytes that the device can still hold; without a limit on a CPU, whose shapes are tiny."""
        return float("inf") if self.tiny else torch.cuda.mem_get_info(self.device)[0]


@dataclass(slots=True)
class Found:
    """What a part finds, written to `file` whenever it grows: what a killed command had measured
    stays.

    tables    title -> rows, whose keys are the columns.
    failures  what contradicts exactness, one line each.
    skipped   what did not run, and why, one line each.
    seconds   the part took.
    """

    file: Path
    tables: dict[str, list[Row]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def write(self) -> None:
        """Write the file. Raises StoreError where that is impossible."""
        content = {name: value for name, value in asdict(self).items() if name != "file"}
        replace_text(self.file, json_text(content, indent=1) + "\n")

    def step(self, machine: Machine, what: str, work: Callable[[], Made]) -> Made | None:
        """What one piece of the part gives; None where no time is left, or it ended early. No
        memory for it, or a model that is refused (ModelError, a ValueError), skips this piece
        alone; a device or library that fails in it is a failure."""
        if machine.left <= 0:
            self.skipped.append(f"{what}: no time was left")
            self.write()
            return None
        machine.say(what)
        try:
            return work()
        except torch.OutOfMemoryError as error:
            self.skipped.append(f"{what}: too little memory on {machine.device}: {one_line(error)}")
        except ValueError as error:
            self.skipped.append(f"{what}: {one_line(error)}")
        except RuntimeError as error:
            self.failures.append(f"{what}: {one_line(error)}")
        finally:
            self.write()
            if machine.device.type == "cuda":
                torch.cuda.empty_cache()
        return None

    def rows(
        self, machine: Machine, what: str, title: str, work: Callable[[], Iterable[Row]]
    ) -> None:
        """Add the rows that a step gives to a table."""
        self.step(machine, what, lambda: self.tables.setdefault(title, []).extend(work()))
