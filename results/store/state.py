"""What a cell lacks of what a command wants, as data.

`state_of` reads what the folders of a cell and of its baseline hold. `lacking` compares that with
what is wanted. Every part of a run takes what it does from the `Todo`: the dry run prints it, the
quality pass decodes and scores, the timed pass times, and the exit status asks whether it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from results.store.sample import FailedSample, Sample, compare, timing_order
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from results.store.cells import CellFolder

PROFILE = "profile"
"""The record of a cell's phases: seconds of each part of a cycle, its own and those of each prompt
(`bench.run.profiling.PhaseProfile`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a command wants of a cell.

    prompts    their ids, in the task's order.
    timed      how many of them are timed: the first ones of `timing_order` that did not fail.
    batch      prompts that are timed at once.
    sessions   the prompts are timed in so many sessions; a `Todo` has those of the next one.
    is_traced  whether every answer has a trace.
    can_score  whether this machine can score the answers.
    scorers    digests of the scorer's code whose scores are taken as they are.
    for_itself whether it is wanted for itself. What failed last in a cell that others are only
               compared with is told by its own command.
    """

    prompts: tuple[str, ...]
    timed: int = 0
    batch: int = 1
    sessions: int = 1
    is_traced: bool = False
    can_score: bool = True
    scorers: frozenset[str] = frozenset()
    for_itself: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CellState:
    """What the store holds of the prompts that are wanted of a cell.

    answered     ids of prompts with an answer.
    failed       id -> why the prompt has none, or none that its baseline's can be compared with.
    unscored     ids of answers without a score.
    scorer       digest of the code that scored the others; None where nobody recorded it.
    timed        ids of the prompts that were timed.
    traced       ids of the prompts that have a trace, where traces are wanted.
    is_profiled  the phases of a cycle are recorded.
    is_recorded  the cell's settings are on disk.
    failure      why the last run could not finish the cell, in one line.
    baseline     the state of its baseline; None in an autoregressive cell.
    """

    answered: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    unscored: frozenset[str] = frozenset()
    scorer: str | None = None
    timed: frozenset[str] = frozenset()
    traced: frozenset[str] = frozenset()
    is_profiled: bool = False
    is_recorded: bool = False
    failure: str | None = None
    baseline: CellState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """What a cell lacks; false where it is complete. Prompts by their ids.

    whole     nothing of it is there; its prompts were not listed, which may take a download.
    decode    without an answer, in the task's order; those that failed are tried again.
    score     answered, without a score that this machine could give.
    trace     answered, without the trace that is wanted: decoded again.
    time      of this measuring session, in the order of timing.
    profile   the phases of a cycle are not recorded, though prompts are timed.
    rescore   the scores are of other code of the scorer: forgotten before `score` is done.
    record    the cell's settings are not on disk.
    failed    id -> why the prompt failed, in the cell or in its baseline, sorted.
    failure   why the last run could not finish the cell.
    fault     why a file of the cell cannot be read; nothing else is known then.
    baseline  what its baseline lacks; None in an autoregressive cell.
    """

    whole: bool = False
    decode: tuple[str, ...] = ()
    score: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    profile: bool = False
    rescore: bool = False
    record: bool = False
    failed: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None
    fault: str | None = None
    baseline: Todo | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    @property
    def untried(self) -> list[str]:
        """Prompts that the cell or its baseline has not tried yet."""
        untried = [prompt for prompt in self.decode if prompt not in self.failed]
        return untried if self.baseline is None else untried + self.baseline.untried

    @property
    def is_measured(self) -> bool:
        """Whether every prompt was tried, and timed where that is wanted: there is a summary. A
        prompt that failed counts as tried."""
        return not (self.whole or self.untried or self.time or self.fault)

    def __str__(self) -> str:
        """`3 answers, 2 times`, `everything` or `complete`."""
        if self.whole:
            return "everything"
        counts = {"answer": self.decode, "score": self.score, "trace": self.trace}
        counts["time"] = self.time
        parts = [
            f"{len(prompts)} {name}{'s' if len(prompts) > 1 else ''}"
            for name, prompts in counts.items()
            if prompts
        ]
        if self.baseline is not None and self.baseline.untried:
            parts.append("baseline")
        if parts:
            return ", ".join(parts)
        return "a last look" if self else "complete"

    def joined(self, other: Todo) -> Todo:
        """What either lacks, where two numbers of prompts are wanted of one cell."""
        both: dict[str, Any] = {}
        for name in self.__slots__:
            mine, others = getattr(self, name), getattr(other, name)
            both[name] = mine or others
            if isinstance(mine, tuple):
                both[name] = tuple(dict.fromkeys((*mine, *others)))
        if self.baseline is not None and other.baseline is not None:
            both["baseline"] = self.baseline.joined(other.baseline)
        return Todo(**both | {"failed": {**self.failed, **other.failed}})


def state_of(wanted: Wanted, folder: CellFolder, baseline: CellFolder | None) -> CellState:
    """What the folders of a cell and of its baseline hold; `baseline` is None for an autoregressive
    cell. Raises StoreError for a file that cannot be read."""
    asked = set(wanted.prompts)
    records = {record.id: record for record in folder.samples() if record.id in asked}
    beside = records
    if baseline is not None:
        beside = {record.id: record for record in baseline.samples() if record.id in asked}
    samples = [record for record in records.values() if isinstance(record, Sample)]
    pairs = compare(records.values(), beside, {})
    config = folder.config()
    code = (config or {}).get("code") or {}
    return CellState(
        answered=frozenset(sample.id for sample in samples),
        failed={pair.id: pair.error for pair in pairs if isinstance(pair, FailedSample)},
        unscored=frozenset(sample.id for sample in samples if sample.unscored),
        scorer=code.get("scorer"),
        timed=frozenset(row.id for row in folder.timed()) if wanted.timed else frozenset(),
        traced=frozenset(TraceFolder(folder).covered()) if wanted.is_traced else frozenset(),
        is_profiled=wanted.timed > 0 and folder.record(PROFILE) is not None,
        is_recorded=config is not None,
        failure=folder.failure(),
        baseline=None if baseline is None else state_of(_of_baseline(wanted), baseline, None),
    )


def _of_baseline(wanted: Wanted) -> Wanted:
    """What is wanted of the baseline of a cell: answers and their scores."""
    return replace(wanted, timed=0, is_traced=False, for_itself=False)


def lacking(wanted: Wanted, state: CellState) -> Todo:
    """What is wanted of a cell and not there."""
    answered = [prompt for prompt in wanted.prompts if prompt in state.answered]
    is_scored = len(state.unscored) < len(answered)
    rescore = wanted.can_score and is_scored and state.scorer not in (None, *wanted.scorers)
    in_order = timing_order(wanted.prompts) if wanted.timed else []
    clocked = [prompt for prompt in in_order if prompt not in state.failed][: wanted.timed]
    baseline = None
    if state.baseline is not None:
        baseline = lacking(_of_baseline(wanted), state.baseline)
    return Todo(
        decode=tuple(prompt for prompt in wanted.prompts if prompt not in state.answered),
        score=tuple(
            prompt
            for prompt in answered
            if wanted.can_score and (rescore or prompt in state.unscored)
        ),
        trace=tuple(
            prompt for prompt in answered if wanted.is_traced and prompt not in state.traced
        ),
        time=_next_session(wanted, clocked, state.timed),
        profile=bool(clocked) and not state.is_profiled,
        rescore=rescore,
        record=not state.is_recorded,
        failed=dict(sorted(state.failed.items())),
        failure=state.failure if wanted.for_itself else None,
        baseline=baseline,
    )


def _next_session(wanted: Wanted, clocked: list[str], timed: frozenset[str]) -> tuple[str, ...]:
    """What the next measuring session times of the prompts `clocked`: they are divided in whole
    batches, and the first part that is not done is due."""
    batches = -(-len(clocked) // wanted.batch)
    for part in range(1, wanted.sessions + 1):
        end = -(-batches * part // wanted.sessions) * wanted.batch
        due = [prompt for prompt in clocked[:end] if prompt not in timed]
        if due:
            return tuple(due)
    return ()
