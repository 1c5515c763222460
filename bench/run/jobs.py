"""A job of the quality pass: prompts of one cell, decoded without a clock and scored, in whichever
process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bench.run.answer import (
    Answer,
    answer,
    check_prompts,
    limits_of,
    prompt_sha256,
    stream_name,
)
from bench.run.engine import Engines
from methods.batch import total
from methods.rules.walk import Clause
from results.store.errors import format_exception
from results.store.sample import Counts, Distortion, FailedSample, Record, Sample
from results.store.traces import Threshold
from tasks.base import Score

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import DecodingEngine, LoadedMethod
    from methods.batch import Divergence
    from methods.engine.language_model import LanguageModel
    from tasks.base import Prompt, Task

WORDS = np.array([clause.word for clause in Clause])


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """Prompts of one cell that are decoded together; without prompts, its models are loaded.

    traced    record every verified position too.
    answered  prompts that samples of the cell or of its baseline answer, with the hash that was
              stored then.
    laws      ids of the prompts whose tokens' laws are compared with the target's; None: all.
    """

    cell: Cell
    prompts: tuple[Prompt, ...]
    traced: bool = False
    answered: tuple[tuple[Prompt, str], ...] = ()
    laws: frozenset[str] | None = None

    def again(self) -> str:
        """A message: what is tried again after its worker has died."""
        if not self.prompts:
            return f"loading the models of {self.cell.name} again"
        return f"decoding its {len(self.prompts)} prompts of {self.cell.name} again"

    def parts(self) -> list[DecodeJob]:
        """Its prompts one by one."""
        return [replace(self, prompts=(prompt,)) for prompt in self.prompts] or [self]


@dataclass(slots=True)
class DecodeResult:
    """What became of a job.

    records    one per prompt, in the job's order.
    traces     of a traced job: id of an answered prompt -> the columns of each turn, as
               `TraceFolder.add` takes them.
    threshold  the rule's, of a traced job.
    failure    why the cell cannot be decoded at all, in one line; there are no records then.
    seconds    wall time.
    """

    records: list[Record] = field(default_factory=list)
    traces: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    threshold: Threshold | None = None
    failure: str | None = None
    seconds: float = 0.0


def loaded_worker() -> Callable[[DecodeJob], DecodeResult]:
    """What a worker calls for each job; it keeps its models loaded."""
    # torch was imported before the worker was forked, and so read OMP_NUM_THREADS too early
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return partial(done_here, engine=Engines())


def done_here(job: DecodeJob, engine: DecodingEngine, *, alone: bool = False) -> DecodeResult:
    """Decode and score a job. `alone`: no other process decodes beside this one, which chooses its
    threads. Nothing is raised: what concerns a prompt alone becomes its record, the rest the job's
    `failure`."""
    began, done = time.perf_counter(), DecodeResult()
    try:
        engine.keep_only([job.cell])
        method = engine.load(job.cell)
        if alone and job.cell.engine.name == "native":
            from bench.run.models import decoding_threads

            torch.set_num_threads(decoding_threads(method.target))
        check_prompts(method.target, job.answered)
        if job.prompts:
            _decode(job, method, done)
    except Exception as error:  # no model, no memory for it: the cell's folder will say why
        done.failure = format_exception(error)
    done.seconds = time.perf_counter() - began
    return done


def _decode(job: DecodeJob, method: LoadedMethod, done: DecodeResult) -> None:
    task = job.cell.load_task()

    stream = partial(stream_name, job.cell, task)
    decode = method.generate_traced if job.traced else method.generate_with_nll

    def ask(prompts: Sequence[Prompt], laws: bool) -> dict[str, Answer]:
        """The answers of a batch. Those that failed in company are tried again in halves, down to a
        prompt alone: a batch may need more memory than a half of it, and a prompt that fails must
        not take others with it."""
        limits = replace(limits_of(job.cell, method.target, task), shrink=True, laws=laws)
        answers = answer(method, prompts, limits, stream, decode=decode)
        failed = [prompt for prompt in prompts if isinstance(answers[prompt.id], FailedSample)]
        middle = -(-len(failed) // 2)
        for half in (failed[:middle], failed[middle:]) if len(prompts) > 1 else ():
            if half:
                answers |= ask(half, laws)
        return answers

    answers: dict[str, Answer] = {}
    for laws in (True, False):
        if alike := [
            prompt for prompt in job.prompts if (job.laws is None or prompt.id in job.laws) == laws
        ]:
            answers |= ask(alike, laws)
    for prompt in job.prompts if job.traced else ():
        turns = answers[prompt.id]
        if not isinstance(turns, FailedSample):
            done.traces[prompt.id] = []
            traces = [generation.trace for generation in turns if generation.trace is not None]
            for turn, trace in enumerate(traces):
                if trace.threshold is not None:
                    threshold = trace.threshold
                    done.threshold = Threshold(threshold.name, threshold.relation, threshold.value)
                if trace.columns:
                    words = {"clause": WORDS[trace.columns["clause"]]}
                    done.traces[prompt.id].append(
                        {"prompt": prompt.id, "turn": turn, **trace.columns, **words}
                    )
    done.records = [
        scored(prompt, answers[prompt.id], task, method.target) for prompt in job.prompts
    ]


def _stored(divergence: Divergence | None) -> Distortion | None:
    """As the store keeps it."""
    if divergence is None:
        return None
    plain = asdict(divergence)
    if not math.isfinite(divergence.nats):
        plain |= dict.fromkeys(name for name in plain if name.startswith("nats"))
    return Distortion(**plain)


def scored(prompt: Prompt, turns: Answer, task: Task, target: LanguageModel) -> Record:
    """The record of an answer; a scorer that raises makes it a failed one, one that cannot run here
    leaves it without a score."""
    if isinstance(turns, FailedSample):
        return turns
    texts = [turn.text for turn in turns]
    unscored = task.unscorable() is not None
    whole = total(turns)
    try:
        score = Score(None) if unscored else task.score(prompt, texts)
    except Exception as error:  # recorded with the prompt, and the cell goes on
        return FailedSample(prompt.id, f"scoring: {format_exception(error)}")
    return Sample(
        id=prompt.id,
        prompt_sha256=prompt_sha256(target, prompt),
        output_ids=whole.output_ids,
        texts=texts,
        turn_tokens=[len(turn.output_ids) for turn in turns],
        finish=[turn.finish for turn in turns],
        score=score.value,
        answer=score.answer,
        details=dict(score.details),
        nll=whole.nll,
        prompt_tokens=whole.prompt_tokens,
        group=prompt.group,
        unscored=unscored,
        distortion=_stored(whole.divergence),
        **{count.name: getattr(whole, count.name) for count in fields(Counts)},
    )
