"""The quality pass: every prompt of every cell, decoded without a clock and scored.

A cell's samples depend on nothing but the cell, so prompts are decoded in whatever batches suit the
machine, in this process or in several (`bench.run.pool`). The baseline of cells is a cell itself:
its samples are decoded once, before those that are compared with it. This process alone appends to
the store, as soon as a batch is done."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch

from bench.run.claims import Claim, Claims, Passes, lock_groups
from bench.run.console import Bar, ProgressBars, console, counted, display_names
from bench.run.jobs import DecodeJob, DecodeResult, done_here, loaded_worker
from bench.run.locks import machine
from bench.run.pool import MOST_DEATHS, Child, Died, ProcessPool, shares
from bench.run.requested_cell import RequestedCell
from methods.engine.device import DEFAULT_THREADS
from methods.engine.texts import has_chat_template
from methods.rules.base import Rule
from results.store.errors import format_exception
from results.store.sample import FailedSample, Record, Sample
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import DecodingEngine
    from results.store.cells import Store
    from tasks.base import Prompt, Task

log = logging.getLogger(__name__)
JOBS_EACH = 2
"""Without as many jobs for it, a worker takes longer to start than it saves."""
PATIENCE_S = 0.5
"""Between two looks at a baseline that another process decodes."""
Tracing = Literal["none", "decoded", "all"]
"""Which answers of a cell are traced: none, those that are decoded in this pass anyway, or all: an
answer without a trace is then decoded again."""
AVERAGED = 16
"""Prompts for which the law of a rule with randomness of its own is averaged: it costs several
decodes."""
INTEGRATED = 3
"""One in so many prompts, but at least `AVERAGED`, for which a law is integrated over what might
have been drawn: it costs up to half a decode."""
SAME = ("output_ids", "committed", "accepted", "relaxed", "greedier")
"""What a trace must share with the sample that was decoded before it."""


def quality_pass(claims: Collection[Claim], passes: Passes, engine: DecodingEngine) -> None:
    """Decode and score the prompts without an answer, and score the answers without a score."""
    for claim in claims:
        if claim.todo.rescore:
            claim.forget_scores()
    quality = QualityPass(claims, passes)
    quality.score()
    if not quality.jobs:
        return
    engines = [claim.cell.engine for claim in claims]
    # one model has all devices, or the engine decodes its batches by itself
    alone = any(engine.parallel != "none" or engine.name != "native" for engine in engines)
    workers = worker_count(passes.workers, {engine.device for engine in engines}, quality.jobs)
    with machine(alone=False):
        quality.run(1 if alone else workers, engine)


def await_baselines(claims: Claims, passes: Passes, store: Store, engine: DecodingEngine) -> None:
    """Wait until other processes have decoded the baselines that they write; decode them when those
    have ended."""
    needed = {claim.cell.baseline().name for claim in claims.by_name.values()}
    for baseline in claims.baselines:
        if baseline.name not in needed & claims.refused.keys():
            continue
        is_told = False
        while RequestedCell(baseline, store).todo(for_itself=False):
            with ExitStack() as locks:
                here: dict[str, Claim] = {}
                refused = lock_groups([[baseline]], here, store, locks, is_wanted=False)
                if here:
                    for claim in here.values():
                        claim.look(passes)
                    quality_pass(here.values(), passes, engine)
                    break
            if not is_told:
                is_told = True
                log.warning("waiting for the baseline: %s", refused[baseline.name])
            time.sleep(PATIENCE_S)


def worker_count(asked: int | None, devices: set[str], jobs: int) -> int:
    """How many processes decode so many jobs: `asked`, or one for each core (as PyTorch counts
    them, so that OMP_NUM_THREADS limits it) or GPU; never more than there are jobs."""
    if asked is not None:
        return max(1, min(asked, jobs))
    if devices == {"cuda"}:
        return max(1, min(torch.cuda.device_count(), jobs))
    return max(1, min(DEFAULT_THREADS, jobs // JOBS_EACH)) if devices == {"cpu"} else 1


def results(
    count: int, devices: set[str], engine: DecodingEngine, next_job: Callable[[], DecodeJob | None]
) -> Iterator[tuple[DecodeJob, DecodeResult]]:
    """Do all jobs: take them from `next_job` until that gives None while no job is under way. One
    worker is this process itself, with the models that `engine` has loaded; each of several has a
    GPU of its own where no cell names one. `devices`: those of the cells."""
    if count == 1:
        while (job := next_job()) is not None:
            yield job, done_here(job, engine, alone=True)
        return
    starts = [
        partial(Child, "forkserver", f"worker {number}", variables, loaded_worker)
        for number, variables in enumerate(shares(count, int(devices <= {"cpu", "cuda"})), start=1)
    ]
    with ProcessPool(starts, DecodeJob.again, DecodeJob.parts) as pool:
        for job, result in pool.run(lambda _: next_job()):
            yield job, _lost(job, result.cause) if isinstance(result, Died) else result


def _lost(job: DecodeJob, cause: str) -> DecodeResult:
    """What becomes of a job on which too many workers died. A job without prompts fails nothing: if
    the models cannot be loaded, the jobs with prompts will say so."""
    if not job.prompts:
        reason = (
            f"worker died ({cause}) while it checked the prompts of earlier samples: run the "
            "command again"
        )
        return DecodeResult(failure=reason if job.answered else None)
    reason = (
        f"{MOST_DEATHS} workers died while they decoded it (the last: {cause}); is there enough "
        "memory?"
    )
    return DecodeResult([FailedSample(prompt.id, reason) for prompt in job.prompts])


@dataclass(slots=True)
class CellWork:
    """What the pass has to do for one cell.

    good     id -> sample on disk.
    answered the prompts of samples on disk whose hash is known, those of the baseline included:
             they are checked before a prompt of this cell is decoded.
    traces   None where none are asked for.
    open     prompts not yet handed out.
    row      its progress bar, once it has begun.
    loading  whether its models are being loaded and `answered` is being checked; None: this was not
             tried yet.
    failed   it cannot be decoded.
    """

    claim: Claim
    prompts: list[Prompt]
    good: dict[str, Sample]
    traces: TraceFolder | None
    open: list[Prompt]
    answered: tuple[tuple[Prompt, str], ...]
    row: Bar | None = None
    loading: bool | None = None
    failed: bool = False

    @classmethod
    def of(
        cls, claim: Claim, prompts: list[Prompt], tracing: Tracing, baseline: Iterable[Sample]
    ) -> CellWork:
        """Raises StoreError."""
        traces = None if tracing == "none" else TraceFolder(claim.folder)
        good = claim.folder.by_id()
        hashes = {sample.id: sample.prompt_sha256 for sample in (*baseline, *good.values())}
        answered = tuple((prompt, hashes[prompt.id]) for prompt in prompts if prompt.id in hashes)
        lacking = {*claim.todo.decode, *claim.todo.trace}
        open_prompts = [prompt for prompt in prompts if prompt.id in lacking]
        if traces is not None and open_prompts:
            traces.clear_failure()
        return cls(claim, prompts, good, traces, open_prompts, answered)

    @property
    def laws(self) -> frozenset[str] | None:
        """Whose tokens' laws are compared with the target's: of the first prompts where that is
        dear, else None for all."""
        cell = self.claim.cell
        rule, sampling = cell.rule.options, cell.decoding.sampling
        if rule.has_own_randomness():
            most = AVERAGED
        elif (
            cell.drafter.options.samples(sampling)
            and not rule.is_lossless(sampling)
            and type(rule).drawn_law is Rule.drawn_law
        ):
            most = max(AVERAGED, len(self.prompts) // INTEGRATED)
        else:
            return None
        return frozenset(prompt.id for prompt in self.prompts[:most])

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

    def store(self, done: DecodeResult) -> None:
        """Append the records of a job and write its traces, those of good prompts."""
        parted = ""
        for record in done.records:
            before = self.good.get(record.id)
            if before is None:
                self.claim.folder.append(record)
                if isinstance(record, Sample):
                    self.good[record.id] = record
            elif reason := difference(record, before):
                parted = f"trace: {record.id}: {reason}"
        if self.traces is None:
            return
        if parted:
            self.traces.write_failure(parted)
        elif ids := [prompt for prompt in done.traces if prompt in self.good]:
            turns = [turn for prompt in ids for turn in done.traces[prompt]]
            self.traces.add(ids, turns, done.threshold)


def difference(record: Record, before: Sample) -> str | None:
    """How a prompt that was decoded again differs from its sample, in one line; None where it does
    not."""
    if isinstance(record, FailedSample):
        return record.error
    for name in SAME:
        if getattr(record, name) != getattr(before, name):
            return (
                f"decoding it again differs from the sample in {name}: models or kernels have "
                "changed since; remove the cell's folder to measure it again"
            )
    return None


class QualityPass:
    """Hands out the jobs of all claimed cells and stores what comes back."""

    def __init__(self, claims: Collection[Claim], passes: Passes) -> None:
        self._batch = passes.quality_batch
        self._works: dict[str, CellWork] = {}
        self._prompts: dict[str, list[Prompt]] = {}
        pairs = list(dict.fromkeys(claim.cell.pair for claim in claims))
        for note in dict.fromkeys(claim.cell.load_task().caution() for claim in claims):
            if note is not None:
                log.warning(note)

        def order(claim: Claim) -> tuple[int, bool, str]:
            """Cells that share models follow each other."""
            cell = claim.cell
            return pairs.index(cell.pair), not cell.is_autoregressive, cell.drafter.name

        for claim in sorted(claims, key=order):
            cell = claim.cell
            try:
                answered: Sequence[Sample] = ()
                if not cell.is_autoregressive:
                    answered = claim.baseline.good_samples()
                prompts = self._prompts_of(cell)
                check_form(cell, prompts)
                self._works[cell.name] = CellWork.of(
                    claim, prompts, tracing_of(claim, passes), answered
                )
            # a torn samples file, prompts that cannot be read: only this cell cannot run
            except Exception as error:
                claim.fail(error)
        wanted = {claim.cell.name for claim in claims if claim.is_wanted}
        self._users: dict[str, list[CellWork]] = {}
        for work in self._works.values():
            cell = work.claim.cell
            if not cell.is_autoregressive and cell.baseline().name not in wanted:
                self._users.setdefault(cell.baseline().name, []).append(work)
        cells = [work.claim.cell for work in self._works.values()]
        self._names = dict(zip(self._works, display_names(cells), strict=True))

    def _prompts_of(self, cell: Cell) -> list[Prompt]:
        """The prompts asked for; cells that share them read them once. Raises TaskError."""
        key = f"{cell.task.model_dump_json()} {cell.n} {cell.seed}"
        if key not in self._prompts:
            self._prompts[key] = cell.prompts()
        return self._prompts[key]

    @property
    def jobs(self) -> int:
        """How many jobs there are."""
        return sum(-(-len(work.open) // self._batch) for work in self._works.values())

    def score(self) -> None:
        """Score the stored answers that another machine could not score, where this one can."""
        for work in self._works.values():
            task = work.claim.cell.load_task()
            due = work.claim.todo.score
            unscored = {name for name in due if name in work.good and work.good[name].unscored}
            waiting = [prompt for prompt in work.prompts if prompt.id in unscored]
            if not waiting:
                continue
            try:
                faults = self._score(work, task, waiting)
            except Exception as error:  # a full disk, say: the next command goes on
                work.give_up(error)
                continue
            console().print(
                f"{self._names[work.claim.cell.name]}: "
                f"{counted(len(waiting) - len(faults), 'stored answer')} scored",
                highlight=False,
            )
            if faults:
                first = next(iter(faults))
                work.claim.fail(
                    f"{len(faults)} of {counted(len(waiting), 'stored answer')} could not be "
                    f"scored; first {first}: {faults[first]}"
                )

    def _score(self, work: CellWork, task: Task, waiting: Sequence[Prompt]) -> dict[str, str]:
        """Store the score of each answer. Returns those that have none, with the reason; the same
        command tries them again."""
        faults = {}
        samples = [work.good[prompt.id] for prompt in waiting]
        with ThreadPoolExecutor(os.cpu_count()) as programs:
            scores = programs.map(partial(scored_later, task), waiting, samples)
            for prompt, scored in zip(waiting, scores, strict=True):
                if isinstance(scored, Exception):
                    faults[prompt.id] = format_exception(scored)
                    continue
                work.claim.folder.append(scored)
                work.good[scored.id] = scored
        return faults

    def run(self, workers: int, engine: DecodingEngine) -> None:
        """Do all jobs, in so many processes, and print how long they took."""
        began, prompts = time.perf_counter(), sum(len(work.open) for work in self._works.values())
        devices = {work.claim.cell.engine.device for work in self._works.values()}
        with ProgressBars(f"quality pass, {counted(workers, 'worker')}", prompts) as self._bars:
            for job, done in results(workers, devices, engine, self.next_job):
                self.take(job, done)
        threads = f", {counted(torch.get_num_threads(), 'thread')}" if workers == 1 else ""
        console().print(
            f"quality pass: {counted(prompts, 'prompt')} in {time.perf_counter() - began:.0f} s, "
            f"{counted(workers, 'worker')}{threads}",
            highlight=False,
        )

    def next_job(self) -> DecodeJob | None:
        """The next batch of prompts: cell by cell, prompts of similar length together and the
        longest first. None while there is none, until a result is taken."""
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
                total = len(work.prompts)
                work.row = self._bars.row(self._names[name], total, total - len(work.open))
            chunk, work.open = work.open[: self._batch], work.open[self._batch :]
            return DecodeJob(work.claim.cell, tuple(chunk), work.traces is not None, laws=work.laws)
        return None

    def _load(self, users: Iterable[CellWork]) -> DecodeJob | None:
        """A job without prompts for the first of the cells whose models were not loaded yet: what
        cannot be loaded, or has other prompts than its samples, fails before anything is decoded
        for nothing."""
        for user in users:
            if user.loading is None:
                user.loading = bool(user.open) and user.start()
                if user.loading:
                    return DecodeJob(user.claim.cell, (), answered=user.answered)
        return None

    def take(self, job: DecodeJob, done: DecodeResult) -> None:
        """Store the result of a job."""
        work = self._works[job.cell.name]
        work.loading = False
        if done.failure is not None:
            work.give_up(done.failure)
            return
        try:
            work.store(done)
        except Exception as error:  # a full disk, say
            work.give_up(error)
            return
        if work.row is not None:
            samples = [record for record in done.records if isinstance(record, Sample)]
            work.row.advance(len(job.prompts), samples, done.seconds)

    def _length(self, work: CellWork) -> Callable[[Prompt], tuple[int, int]]:
        """How long a prompt will take: its answer by the baseline, where that is known, then the
        prompt itself."""
        baseline = self._works.get(work.claim.cell.baseline().name)
        answers = {} if baseline is None else baseline.good
        most = work.claim.cell.max_new_tokens

        def length(prompt: Prompt) -> tuple[int, int]:
            answer = answers.get(prompt.id)
            size = (
                len(prompt.input_ids or ()) + len(prompt.text or "") + sum(map(len, prompt.turns))
            )
            return (most if answer is None else len(answer.output_ids)), size

        return length


def tracing_of(claim: Claim, passes: Passes) -> Tracing:
    """Which of the cell's answers are traced."""
    cell = claim.cell
    if claim.is_wanted and cell.name in passes.traced:
        return "all"
    return "decoded" if cell.name in passes.along and cell.engine.shows_positions else "none"


def check_form(cell: Cell, prompts: Iterable[Prompt]) -> None:
    """Say where a file's texts are read as they stand though the target has a chat template."""
    if (
        cell.task.name == "prompts"
        and any(prompt.text is not None for prompt in prompts)
        and has_chat_template(cell.pair.target.source, cell.pair.target.revision)
    ):
        log.warning(
            "task=prompts: `prompt` is read as it stands, without the chat template of %s, whose "
            "answers may end at once; rows with `messages` are asked through it",
            cell.pair.target.source,
        )


def scored_later(task: Task, prompt: Prompt, sample: Sample) -> Sample | Exception:
    """The sample with its score, or why it has none."""
    try:
        score = task.score(prompt, sample.texts)
    except Exception as error:  # of this answer alone
        return error
    return replace(
        sample, score=score.value, answer=score.answer, details=dict(score.details), unscored=False
    )
