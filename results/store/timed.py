"""Records of timed.jsonl: timings of one prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from results.store.errors import first_fault
from results.store.records import whole_lines
from results.store.sample import STRICT


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where the timed pass decoded another token than the quality pass.

    at       index of the first differing token, all turns
    margin   difference of the target's two largest raw logits in the context before it, float32
    between  probability, under the target, of the ids strictly between the two tokens; None at temperature 0, where
             one answer ends, and in older records
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    at: int
    margin: float
    between: float | None = None


@dataclass(frozen=True, slots=True)
class Stalled:
    """A run that the machine stalled and that was timed again; fields as in `TimedRun`."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    prefill_s: float
    decode_s: float
    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One timed answer.

    tokens     emitted tokens, all turns
    cycles     draft–verify cycles, all turns: forwards of the target after the prefill
    prefill_s  seconds of the prefill, all turns
    decode_s   seconds of decoding, prefill and tokenisation excluded; in a batch, the batch's divided by its rows
    parted     None where its tokens equal those of the quality pass
    wall_s     seconds of the whole answer, tokenisation included; in a batch as decode_s; None if not recorded
    cpu_s      CPU seconds of all threads of the process meanwhile; None on an accelerator, where they show no stalls
    stalled    whether the machine stalled this run too, after the allowed repeats
    repeated   the runs that were stalled before it
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    tokens: int
    cycles: int
    prefill_s: float
    decode_s: float
    parted: FirstDifference | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    stalled: bool = False
    repeated: tuple[Stalled, ...] = ()


@dataclass(frozen=True, slots=True)
class Timed:
    """One prompt of the timed pass.

    id        the prompt's id
    own       the cell's own run
    baseline  the autoregressive run of the same rotation; None in the autoregressive cell
    host      the machine's name
    boot      the machine's boot, as the kernel names it: clocks and frequencies of one boot compare
    started   when the measuring session began, ISO 8601 in UTC
    shared    whether other workers of a launcher may have run on the machine meanwhile
    batch     id of the first prompt of the batch that it was timed in; None where it was timed alone
    threads   CPU threads of the process; None in older records
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    own: TimedRun
    baseline: TimedRun | None
    host: str
    boot: str
    started: str
    shared: bool = False
    batch: str | None = None
    threads: int | None = None

    @property
    def runs(self) -> tuple[TimedRun, TimedRun]:
        """The cell's run and the baseline's; in the autoregressive cell both are its own."""
        return self.own, self.own if self.baseline is None else self.baseline


def is_rated(row: Timed) -> bool:
    """Whether both took a cycle on a timed prompt."""
    return all(run.cycles and run.decode_s > 0 for run in row.runs)


_TIMED = TypeAdapter(Timed)


def timing_order(ids: Iterable[str]) -> list[str]:
    """Prompts in the order in which they are timed: by the SHA-256 of their ids, so that the first few are a random
    sample, the same one for every method. The first prompts of a task may be unlike the rest."""
    return sorted(ids, key=lambda name: sha256(name.encode()).digest())


def batches(rows: Iterable[Timed]) -> list[list[Timed]]:
    """The rows that were timed at once: their seconds are shares of one time, so that they are one observation."""
    together: dict[tuple[str, str], list[Timed]] = {}
    for row in rows:
        together.setdefault((row.started, row.batch or row.id), []).append(row)
    return list(together.values())


def read_timed(path: Path, content: bytes) -> list[Timed]:
    """The records of a timed.jsonl with this content, one per prompt: a later line of a prompt replaces an earlier one.
    Raises StoreError, naming file and line, for a whole line that is no record."""
    rows = {timed.id: timed for _, timed in whole_lines(path, content, _parse, "timed prompt")}
    return list(rows.values())


def _parse(text: bytes) -> Timed:
    try:
        return _TIMED.validate_json(text)
    except ValidationError as invalid:
        raise ValueError(first_fault(invalid)) from None
