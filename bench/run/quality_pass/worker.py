"""Decode prompts of one cell without a clock and score them: what a worker of the quality pass does."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.run.answer import Answer, Decode, answer, check_prompts, limits_of, prompt_sha256, stream_name
from methods.rules.clause import Clause
from results.store.reasons import format_exception
from results.store.sample import FailedSample, Record, Sample
from results.store.traces import Threshold
from tasks.base import Score

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import Engine, LoadedMethod
    from methods.batch import Generation
    from methods.decode import Limits, Request
    from methods.engine.protocols import Text
    from methods.trace import Traced
    from tasks.base import Prompt, Task

WORDS = np.array([clause.word for clause in Clause])


@dataclass(frozen=True, slots=True)
class Job:
    """Prompts of one cell that are decoded together; without prompts, its models are loaded.

    traced    record every verified position too.
    answered  prompts that samples of the cell or of its baseline answer, with the hash that was stored then.
    """

    cell: Cell
    prompts: tuple[Prompt, ...]
    traced: bool = False
    answered: tuple[tuple[Prompt, str], ...] = ()


@dataclass(slots=True)
class Done:
    """What became of a job.

    records    one per prompt, in the job's order.
    traced     of a traced job, the ids of the prompts whose traces are in `columns`.
    columns    one mapping per traced prompt and turn, as `TraceFolder.write` takes them.
    threshold  the rule's, of a traced job.
    untraced   why a prompt could be decoded, but not while it was traced.
    failure    why the cell cannot be decoded at all, in one line; there are no records then.
    seconds    wall time.
    cpu_s      processor time, all threads and the programs that scores ran.
    """

    records: list[Record] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    columns: list[dict[str, Any]] = field(default_factory=list)
    threshold: Threshold | None = None
    untraced: str | None = None
    failure: str | None = None
    seconds: float = 0.0
    cpu_s: float = 0.0


class JobRunner:
    """Does one job after the other on models that it keeps loaded."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, job: Job) -> Done:
        """Decode and score a job. Nothing is raised: what concerns a prompt alone becomes its record, the rest the
        job's `failure`."""
        began, cpu_began, done = time.perf_counter(), _cpu_seconds(), Done()
        try:
            self._engine.keep_only([job.cell])
            method = self._engine.load(job.cell)
            check_prompts(method.target, job.answered)
            if job.prompts:
                self._fill(done, job, method, job.cell.load_task())
        except Exception as error:  # no model, no memory for it: the cell's folder will say why
            done.failure = format_exception(error)
        done.seconds, done.cpu_s = time.perf_counter() - began, _cpu_seconds() - cpu_began
        return done

    def _fill(self, done: Done, job: Job, method: LoadedMethod, task: Task) -> None:
        traces: dict[str, Traced] = {}
        runs = self._answers(job, method, task, job.prompts,
                             tracing(method, traces) if job.traced else method.generate_with_nll)
        if job.traced:
            _add_columns(done, job, runs, task, traces)
            runs = self._again_untraced(done, job, method, task, runs)
        done.records = [scored(run, task, method.target) for run in runs]

    def _answers(self, job: Job, method: LoadedMethod, task: Task, prompts: Sequence[Prompt],
                 decode: Decode) -> list[Answer]:
        """The answers of a batch. Those that failed in company are tried again in halves, down to a prompt alone: a
        batch may need more memory than a half of it, and a prompt that fails must not take others with it."""
        runs = {run.prompt.id: run for run in _ask(job, method, task, prompts, decode)}
        failed = [run.prompt for run in runs.values() if run.error is not None]
        middle = -(-len(failed) // 2)
        for half in (failed[:middle], failed[middle:]) if len(prompts) > 1 else ():
            if half:
                runs |= {run.prompt.id: run for run in self._answers(job, method, task, half, decode)}
        return list(runs.values())

    def _again_untraced(self, done: Done, job: Job, method: LoadedMethod, task: Task,
                        runs: Sequence[Answer]) -> list[Answer]:
        """The answers, those that failed decoded again as if they were not traced."""
        answers = list(runs)
        for place, run in enumerate(runs):
            if run.error is not None:
                [answers[place]] = _ask(job, method, task, [run.prompt], method.generate_with_nll)
                if answers[place].error is None:
                    done.untraced = f"{run.prompt.id}: {run.error}"
        return answers


def _cpu_seconds() -> float:
    return sum(os.times()[:4])  # of the process and of its children, user and system


def _ask(job: Job, method: LoadedMethod, task: Task, prompts: Sequence[Prompt],
         decode: Decode) -> list[Answer]:
    limits = replace(limits_of(job.cell, method.target, task), shrink=True)
    return answer(method, prompts, limits,
                  lambda prompt, turn: stream_name(job.cell, task, prompt, turn), decode=decode)


def scored(run: Answer, task: Task, target: Text) -> Record:
    """The record of an answer; a scorer that raises makes it a failed one, one that cannot run here leaves it without a
    score."""
    if run.error is not None:
        return FailedSample(run.prompt.id, run.error)
    unscored = task.unscorable() is not None
    try:
        score = Score(None) if unscored else task.score(run.prompt, run.texts)
    except Exception as error:  # recorded with the prompt, and the cell goes on
        return FailedSample(run.prompt.id, f"scoring: {format_exception(error)}")
    turns = run.generations
    return Sample(
        id=run.prompt.id, prompt_sha256=prompt_sha256(target, run.prompt), output_ids=run.output_ids, texts=run.texts,
        turn_tokens=[len(turn.output_ids) for turn in turns], finish=[turn.finish for turn in turns],
        score=score.value, answer=score.answer, details=dict(score.details), nll=run.nll,
        prompt_tokens=sum(turn.prompt_tokens for turn in turns), group=run.prompt.group, unscored=unscored,
        **run.counts.plain())


def tracing(method: LoadedMethod, traces: dict[str, Traced]) -> Decode:
    """Decode as `generate_traced`, each trace stored in `traces` under its request's key."""
    def decode(requests: Sequence[Request], limits: Limits) -> list[Generation]:
        batch = method.generate_traced(requests, limits)
        traces.update(zip((request.key for request in requests), batch, strict=True))
        return [trace.generation for trace in batch]
    return decode


def _add_columns(done: Done, job: Job, runs: Sequence[Answer], task: Task, traces: dict[str, Traced]) -> None:
    """Add the columns of each answered prompt and turn to `done`, and the threshold."""
    for run in runs:
        if run.error is not None:
            continue
        done.traced.append(run.prompt.id)
        for turn in range(len(run.generations)):
            trace = traces[stream_name(job.cell, task, run.prompt, turn)]
            if trace.threshold is not None:
                done.threshold = Threshold(**asdict(trace.threshold))
            if trace.columns:
                words = WORDS[trace.columns["clause"]]
                done.columns.append({"prompt": run.prompt.id, "turn": turn, **trace.columns, "clause": words})
