"""Cells that differ only in their method run in rotation over the same prompts, each beside one shared baseline.

For each prompt (or batch of prompts) the autoregressive baseline runs once, then every cell that still lacks the
prompt, in an order that rotates from prompt to prompt: drift of the machine hits all of them alike. A sample is on disk
before the next method starts, and carries the baseline it was timed beside.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.run.asked import PROFILE, AskedFolder, asked_folder
from bench.run.conversation import Answer, answer
from bench.run.likelihood import add_nll
from bench.run.model_pool import ModelPool, use_threads
from bench.run.profiling import PROMPTS, profiles
from bench.run.progress import Bars, display_names
from methods.decode import Limits
from results.store.errors import Locked
from results.store.reasons import format_exception
from results.store.sample import Baseline, FailedSample, Sample
from tasks.base import Prompt, Score, Task

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from methods.method import Method
    from results.store.cells import CellFolder, Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Arm:
    """One cell of a rotation while it runs. `done`: prompts whose sample is on disk and did not fail."""

    cell: Cell
    folder: AskedFolder
    method: Method
    done: set[str]


def rotations(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Group cells that can share prompts and baseline, in the order of their first cell, those of one pair together, so
    that its models are loaded once. Repeated cells count once."""
    groups: dict[str, dict[str, Cell]] = {}
    pairs: dict[Pair, int] = {}
    for cell in cells:
        groups.setdefault(cell.rotation_key, {})[cell.name] = cell
        pairs.setdefault(cell.pair, len(pairs))
    found = [list(group.values()) for group in groups.values()]
    return sorted(found, key=lambda group: pairs[group[0].pair])


def is_complete(folder: CellFolder) -> bool:
    """Every prompt of the cell was measured; failed prompts are tried again."""
    summary = folder.summary()
    return summary is not None and summary.failed == 0


def is_current(folder: AskedFolder) -> bool:
    """Whether the cell is complete and what is on disk says so."""
    stored = folder.stored_summary()
    return is_complete(folder) and stored is not None and stored.asked == folder.cell.n and folder.failure() is None


def run_rotation(cells: Sequence[Cell], store: Store, pool: ModelPool) -> list[Cell]:
    """Bring the cells of one rotation to completion, and return those that another process is writing. What goes wrong
    is recorded in their folders, not raised."""
    written_elsewhere = []
    with ExitStack() as locks:
        folders: dict[str, AskedFolder] = {}
        for cell in cells:
            folder = asked_folder(cell, store)
            if is_current(folder):
                continue
            try:
                locks.enter_context(folder.lock())
            except Locked:
                written_elsewhere.append(cell)
                continue
            folder.clear_failure()
            if is_complete(folder):  # for another number of prompts, or by another process while the lock was free
                folder.write_summary(folder.summarised(folder.samples()))
            else:
                folders[cell.name] = folder
        if folders:
            _run_locked([cell for cell in cells if cell.name in folders], folders, pool)
    return written_elsewhere


def _run_locked(cells: list[Cell], folders: dict[str, AskedFolder], pool: ModelPool) -> None:
    first = cells[0]
    try:
        for cell in cells:
            folders[cell.name].write_config(cell.record())
        task = first.load_task()
        task.check()
        prompts = task.prompts(first.n, first.seed)
        pool.keep_only(cells)
        use_threads(first.engine)
        for cell in cells:
            folders[cell.name].write_environment(cell.environment(sys.argv))
        baseline = pool.method(first.baseline())
    except Exception as error:  # nothing of this rotation can run: every cell says why
        for folder in folders.values():
            folder.write_failure(format_exception(error))
        log.debug("rotation failed", exc_info=True)
        return
    arms = []
    for cell in cells:
        folder = folders[cell.name]
        try:
            method = baseline if cell.is_autoregressive else pool.method(cell)
            done = {sample.id for sample in folder.good_samples()}
        except Exception as error:  # this cell alone cannot run
            folder.write_failure(format_exception(error))
            continue
        arms.append(Arm(cell, folder, method, done))
    if not arms:
        return
    try:
        Rotation(arms, baseline, task, prompts).run()
    except Exception as error:  # nothing a prompt did, that is recorded with the prompt: a full disk, say
        for arm in arms:
            if not is_complete(arm.folder):
                arm.folder.write_failure(format_exception(error))
        log.debug("rotation failed", exc_info=True)


class Rotation:
    """The timed pass over all prompts."""

    def __init__(self, arms: list[Arm], baseline: Method, task: Task, prompts: list[Prompt]):
        self.arms, self.baseline, self.task = arms, baseline, task
        self.cell = arms[0].cell
        self.total = len(prompts)
        self.chunks = chunked(prompts, self.cell.batch)
        self.limits = Limits(self.cell.max_new_tokens, baseline.target.eos_ids, task.stop)

    def run(self) -> None:
        pending = [chunk for chunk in self.chunks if self._pending(chunk)]
        if pending:
            self._warm_up(pending[0])
        names, done = display_names([arm.cell for arm in self.arms]), [len(arm.done) for arm in self.arms]
        with Bars(names, done, self.total) as bars:
            for index, chunk in enumerate(self.chunks):
                if arms := self._pending(chunk):
                    self._measure(chunk, arms[index % len(arms):] + arms[:index % len(arms)], bars)
        base, *others = self._profiles()
        for arm, own in zip(self.arms, others, strict=True):
            arm.folder.write_record(PROFILE, {"own": own, "baseline": base})
            arm.folder.write_summary(arm.folder.summarised(arm.folder.samples()))

    def _profiles(self) -> list[dict[str, float] | None]:
        """Of the baseline and of every arm, on the first prompts that were measured."""
        good = {sample.id for sample in self.arms[0].folder.good_samples()}
        prompts = [prompt for chunk in self.chunks for prompt in chunk if prompt.id in good][:PROMPTS]
        methods = [arm.method for arm in self.arms if not arm.cell.is_autoregressive]
        base, *others = profiles([self.baseline, *methods], prompts, self.limits, self._stream)
        found = iter(others)
        return [base, *(base if arm.cell.is_autoregressive else next(found) for arm in self.arms)]

    def _pending(self, chunk: list[Prompt]) -> list[Arm]:
        return [arm for arm in self.arms if any(prompt.id not in arm.done for prompt in chunk)]

    def _warm_up(self, chunk: list[Prompt]) -> None:
        """One untimed turn of every method: first calls allocate, compile and fill caches."""
        for method in [self.baseline, *(arm.method for arm in self._pending(chunk))]:
            answer(method, chunk, self.limits, self._stream, turns=1)

    def _measure(self, chunk: list[Prompt], arms: list[Arm], bars: Bars) -> None:
        base = self._ask(self.baseline, chunk)
        for arm in arms:
            own = arm.cell.is_autoregressive
            measured = base if own else self._ask(arm.method, chunk)
            for prompt, (run, score), (base_run, base_score) in zip(chunk, measured, base, strict=True):
                if prompt.id in arm.done:
                    continue
                error = run.error or (base_run.error and f"baseline: {base_run.error}")
                if error:
                    arm.folder.append(FailedSample(prompt.id, error))
                else:
                    beside = None if own else _baseline(base_run, base_score)
                    arm.folder.append(_sample(run, score, arm.cell.seed, beside))
                bars.advance(self.arms.index(arm), run)

    def _ask(self, method: Method, chunk: list[Prompt]) -> list[tuple[Answer, Score]]:
        """The answers with their scores and likelihoods. A scorer that raises makes the answer a failed one, and so
        does a likelihood that does not fit in memory: neither concerns the other methods."""
        scored = []
        runs = answer(method, chunk, self.limits, self._stream)
        try:
            add_nll(method.target, runs)
        except Exception as error:
            for run in runs:
                run.error = run.error or f"likelihood: {format_exception(error)}"
        for run in runs:
            score = Score(None)
            if run.error is None:
                try:
                    score = self.task.score(run.prompt, run.texts)
                except Exception as error:  # recorded with the prompt, and the cell goes on
                    run.error = f"scoring: {format_exception(error)}"
            scored.append((run, score))
        return scored

    def _stream(self, prompt: Prompt, turn: int) -> str:
        return stream_name(self.cell, self.task, prompt, turn)


def chunked(prompts: list[Prompt], size: int) -> list[list[Prompt]]:
    """Batches are fixed, so that one holds the same prompts wherever a run was killed."""
    return [prompts[i:i + size] for i in range(0, len(prompts), size)]


def stream_name(cell: Cell, task: Task, prompt: Prompt, turn: int) -> str:
    """The random stream of one turn."""
    return f"{cell.seed}/{task.name}/{prompt.id}/{cell.repeat}/{turn}"


def _sample(run: Answer, score: Score, seed: int, baseline: Baseline | None) -> Sample:
    return Sample(
        id=run.prompt.id, output_ids=run.output_ids, text="\n\n".join(run.texts), texts=run.texts,
        turn_tokens=run.turn_tokens, committed=run.committed, accepted=run.accepted, relaxed=run.relaxed,
        greedier=run.greedier, drafted=run.drafted, pruned=run.pruned, prefill_s=run.prefill_s, decode_s=run.decode_s,
        finish=run.finish, score=score.value, answer=score.answer, details=dict(score.details), seed=seed, nll=run.nll,
        prompt_tokens=run.prompt_tokens, baseline=baseline, flags=run.flags, group=run.prompt.group,
    )


def _baseline(run: Answer, score: Score) -> Baseline:
    return Baseline(run.output_ids, run.decode_s, run.prefill_s, score.value, run.finish, run.nll)
