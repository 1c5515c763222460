"""The quality pass: every prompt of every cell, decoded without a clock.

A cell's samples depend on nothing but the cell, so prompts are decoded in whatever batches suit the machine. The
baseline of cells is a cell itself: its samples are decoded once, before those that are compared with it. One
process appends to the store, as soon as a batch is done."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from bench.run.console import console
from bench.run.progress import Bar, Bars, display_names
from bench.run.quality_pass.processes import run_jobs
from bench.run.quality_pass.worker import Job
from results.store.sample import FailedSample, Record, Sample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import Engine
    from bench.run.locks import Claim
    from bench.run.quality_pass.worker import Done
    from results.store.cells import Store
    from tasks.base import Prompt, Task

log = logging.getLogger(__name__)
Tracing = Literal["none", "decoded", "all"]
"""Which answers of a cell are traced: none, those that are decoded in this pass anyway, or all: an answer without a
trace is then decoded again."""
SAME = ("output_ids", "committed", "accepted", "relaxed", "greedier")
"""What a trace must share with the sample that was decoded before it."""


@dataclass(frozen=True, slots=True)
class Size:
    """Traced prompts, and the bytes of their traces on disk."""

    prompts: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.prompts + other.prompts, self.bytes + other.bytes)

    def __str__(self) -> str:
        return f"{counted(self.prompts, 'prompt')}, {self.bytes / self.prompts / 1e3:.1f} kB a prompt"


@dataclass(slots=True)
class CellWork:
    """What the pass has to do for one cell.

    good     id -> sample on disk.
    answered the prompts of samples on disk whose hash is known, those of the baseline included: they are checked
             before a prompt of this cell is decoded.
    traces   None where none are asked for.
    covered  ids of the prompts that are traced or need not be.
    open     prompts not yet handed out.
    row      its progress bar, once it has begun.
    loading  whether its models are being loaded and `answered` is being checked; None: this was not tried yet.
    failed   it cannot be decoded.
    """

    claim: Claim
    prompts: list[Prompt]
    good: dict[str, Sample]
    traces: TraceFolder | None
    covered: set[str]
    open: list[Prompt]
    answered: tuple[tuple[Prompt, str], ...]
    row: Bar | None = None
    loading: bool | None = None
    failed: bool = False

    @classmethod
    def of(cls, claim: Claim, prompts: list[Prompt], tracing: Tracing, baseline: Iterable[Sample]) -> CellWork:
        """Raises StoreError."""
        traces = None if tracing == "none" else TraceFolder(claim.folder)
        good = {sample.id: sample for sample in claim.folder.good_samples()}
        covered = traces.covered() if traces is not None and tracing == "all" else set(good)
        hashes = {sample.id: sample.prompt_sha256 for sample in (*baseline, *good.values()) if sample.prompt_sha256}
        answered = tuple((prompt, hashes[prompt.id]) for prompt in prompts if prompt.id in hashes)
        work = cls(claim, prompts, good, traces, covered, [], answered)
        work.open = [prompt for prompt in work.prompts if work.lacks(prompt)]
        if traces is not None and work.open:
            traces.clear_failure()
        return work

    def lacks(self, prompt: Prompt) -> bool:
        """Whether the prompt is still to be decoded."""
        return prompt.id not in self.good or (self.traces is not None and prompt.id not in self.covered)

    def give_up(self, reason: Exception | str) -> None:
        """The cell cannot be decoded."""
        self.claim.fail(reason)
        self.failed = True
        self.open.clear()

    def start(self) -> bool:
        """Write what is known before anything is decoded. False where that fails."""
        self.failed = not self.claim.start()
        if self.failed:
            self.open.clear()
        return not self.failed

    def store(self, done: Done) -> Size:
        """Append the records of a job and write its traces, those of good prompts. Returns how much was traced."""
        parted = None
        for record in done.records:
            before = self.good.get(record.id)
            if before is None:
                self.claim.folder.append(record)
                if isinstance(record, Sample):
                    self.good[record.id] = record
            elif reason := difference(record, before):
                parted = f"{record.id}: {reason}"
        if self.traces is None:
            return Size()
        if reason := parted or done.untraced:
            self.traces.write_failure(f"trace: {reason}")
        if ids := [prompt for prompt in done.traced if prompt in self.good and not parted]:
            columns = [column for column in done.columns if column["prompt"] in ids]
            self.covered.update(ids)
            return Size(len(ids), self.traces.add(ids, columns, done.threshold))
        return Size()


def difference(record: Record, before: Sample) -> str | None:
    """How a prompt that was decoded again differs from its sample, in one line; None where it does not."""
    if isinstance(record, FailedSample):
        return record.error
    names = [name for name in SAME if getattr(record, name) != getattr(before, name)]
    return None if not names else (f"decoding it again differs from the sample in {names[0]}: models or kernels have "
                                   "changed since; remove the cell's folder to measure it again")


class QualityPass:
    """Hands out the jobs of all claimed cells and stores what comes back."""

    def __init__(self, claims: Mapping[str, Claim], requested: Collection[str], tracing: Callable[[Cell], Tracing],
                 batch: int, store: Store) -> None:
        """`requested`: names of the cells that are wanted for themselves, not as the baseline of another one."""
        self._batch = batch
        self._works: dict[str, CellWork] = {}
        self._prompts: dict[str, list[Prompt]] = {}
        pairs = list(dict.fromkeys(claim.cell.pair for claim in claims.values()))
        for note in dict.fromkeys(claim.cell.load_task().caution() for claim in claims.values()):
            if note is not None:
                log.warning(note)
        for claim in sorted(claims.values(), key=lambda claim: (  # cells that share models follow each other
                pairs.index(claim.cell.pair), not claim.cell.is_autoregressive, claim.cell.drafter.name)):
            try:
                cell = claim.cell
                answered = () if cell.is_autoregressive else store.cell(cell.baseline().name).good_samples()
                self._works[cell.name] = CellWork.of(claim, self._prompts_of(cell), tracing(cell), answered)
            except Exception as error:  # a torn samples file, prompts that cannot be read: only this cell cannot run
                claim.fail(error)
        self._users: dict[str, list[CellWork]] = {}
        for work in self._works.values():
            cell = work.claim.cell
            if not cell.is_autoregressive and (baseline := cell.baseline().name) not in requested:
                self._users.setdefault(baseline, []).append(work)
        self.cpu_s, self.traced = 0.0, Size()
        self._names = _names([work.claim.cell for work in self._works.values()])

    def _prompts_of(self, cell: Cell) -> list[Prompt]:
        """The prompts asked for; cells that share them read them once. Raises TaskError."""
        key = f"{cell.task.model_dump_json()} {cell.n} {cell.seed}"
        if key not in self._prompts:
            self._prompts[key] = cell.load_task().prompts(cell.n, cell.seed)
        return self._prompts[key]

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return sum(-(-len(work.open) // self._batch) for work in self._works.values())

    def score(self) -> None:
        """Score the stored answers that another machine could not score, where this one can."""
        for work in self._works.values():
            task = work.claim.cell.load_task()
            waiting = [prompt for prompt in work.prompts if prompt.id in work.good and work.good[prompt.id].unscored]
            if not waiting or task.unscorable() is not None:
                continue
            try:
                with ThreadPoolExecutor(os.cpu_count()) as programs:
                    for done in programs.map(partial(scored_later, task), waiting,
                                             [work.good[prompt.id] for prompt in waiting]):
                        work.claim.folder.append(done)
                        work.good[done.id] = done
            except Exception as error:  # a machine without memory, a full disk: the next command goes on
                work.give_up(error)
                continue
            console().print(f"{self._names[work.claim.cell.name]}: {counted(len(waiting), 'stored answer')} scored",
                            highlight=False)

    def run(self, workers: int, engine: Engine) -> None:
        """Do all jobs, in so many processes, and print how busy they were."""
        prompts, began = sum(len(work.open) for work in self._works.values()), time.perf_counter()
        with Bars(f"quality pass, {counted(workers, 'worker')}", prompts) as self._bars:
            run_jobs(workers, engine, self.next_job, self.take)
        seconds = time.perf_counter() - began
        console().print(f"quality pass: {counted(prompts, 'prompt')} in {seconds:.0f} s, {counted(workers, 'worker')} "
                        f"{self.cpu_s / (workers * seconds):.0%} busy", highlight=False)
        if unchecked := sum(sample.prompt_sha256 is None for work in self._works.values()
                            for sample in work.good.values()):
            console().print(f"{counted(unchecked, 'earlier sample')} without a hash of the prompt: taken as they are",
                            highlight=False)
        if self.traced.prompts:
            console().print(f"traced: {self.traced}", highlight=False)

    def next_job(self) -> Job | None:
        """The next batch of prompts: cell by cell, prompts of similar length together and the longest first. None while
        there is none, until a result is taken."""
        for name, work in self._works.items():
            if not work.open:
                continue
            users = self._users.get(name, [])
            if load := self._load(users):
                return load
            if any(user.loading for user in users):
                return None
            if users and all(user.failed for user in users):
                work.give_up("no cell that is compared with it can be decoded")
            if not work.open or not work.start():
                continue
            if work.answered and (load := self._load([work])):
                return load
            if work.loading:  # other cells may go on meanwhile
                continue
            if work.row is None:
                work.open.sort(key=self._length(work), reverse=True)
                done = sum(not work.lacks(prompt) for prompt in work.prompts)
                work.row = self._bars.row(self._names[name], len(work.prompts), done)
            chunk, work.open = work.open[:self._batch], work.open[self._batch:]
            return Job(work.claim.cell, tuple(chunk), work.traces is not None)
        return None

    def _load(self, users: Iterable[CellWork]) -> Job | None:
        """A job without prompts for the first of the cells whose models were not loaded yet: what cannot be loaded, or
        has other prompts than its samples, fails before anything is decoded for nothing."""
        for user in users:
            if user.loading is None:
                user.loading = bool(user.open) and user.start()
                if user.loading:
                    return Job(user.claim.cell, (), answered=user.answered)
        return None

    def take(self, job: Job, done: Done) -> None:
        """Store the result of a job."""
        self.cpu_s += done.cpu_s
        work = self._works[job.cell.name]
        work.loading = False
        if done.failure is not None:
            work.give_up(done.failure)
            return
        try:
            self.traced += work.store(done)
        except Exception as error:  # a full disk, say
            work.give_up(error)
            return
        samples = [record for record in done.records if isinstance(record, Sample)]
        if work.row is not None:
            work.row.advance(len(job.prompts), samples, done.seconds)

    def _length(self, work: CellWork) -> Callable[[Prompt], tuple[int, int]]:
        """How long a prompt will take: its answer by the baseline, where that is known, then the prompt itself."""
        baseline = self._works.get(work.claim.cell.baseline().name)
        answers = {} if baseline is None else baseline.good

        def length(prompt: Prompt) -> tuple[int, int]:
            known = answers.get(prompt.id)
            own = len(prompt.input_ids or ()) + len(prompt.text or "") + sum(map(len, prompt.turns))
            return (work.claim.cell.max_new_tokens if known is None else len(known.output_ids)), own

        return length


def scored_later(task: Task, prompt: Prompt, sample: Sample) -> Sample:
    """The sample with its score."""
    score = task.score(prompt, sample.texts)
    return replace(sample, score=score.value, answer=score.answer, details=dict(score.details), unscored=False)


def counted(number: int, thing: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _names(cells: Iterable[Cell]) -> dict[str, str]:
    """A short name for each cell, distinct among those of its task."""
    names: dict[str, str] = {}
    for _, same in groupby(sorted(cells, key=lambda cell: cell.task.name), key=lambda cell: cell.task.name):
        group = list(same)
        names.update(zip((cell.name for cell in group), display_names(group), strict=True))
    return names
