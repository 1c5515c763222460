"""`trace=true`: a second, untimed pass that decodes every measured prompt again and records each verified position.

It uses the same batches and random streams as the timed pass and must decode the same tokens; otherwise the trace is
refused. Traces are written batch by batch, and a batch on disk is not traced again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.run.asked import asked_folder
from bench.run.conversation import Answer, answer
from bench.run.progress import Bars, display_names
from bench.run.rotation import chunked, stream_name
from methods.decode import Limits
from methods.rules.clause import Clause
from methods.trace import Traced, decoder
from results.store.errors import StoreError
from results.store.reasons import format_exception
from results.store.traces import Threshold, TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.model_pool import ModelPool
    from methods.method import Method
    from results.store.cells import CellFolder, Store
    from results.store.sample import Sample
    from tasks.base import Prompt, Task

log = logging.getLogger(__name__)
SAME = ("output_ids", "committed", "accepted", "relaxed", "greedier")
WORDS = np.array([clause.word for clause in Clause])


class TraceMismatch(RuntimeError):
    """The untimed pass decoded something else. The message is one line."""


def trace_cells(cells: Sequence[Cell], store: Store, pool: ModelPool) -> None:
    """Trace every cell that has been measured. What goes wrong is recorded in its trace folder, not raised."""
    pool.keep_only(cells)
    for cell in cells:
        folder = asked_folder(cell, store)
        if folder.summary() is None:
            continue  # the folder records why
        traces = TraceFolder(folder)
        try:
            with folder.lock(wait=True):
                traces.clear_failure()
                _trace(cell, folder, traces, pool)
        except StoreError as error:
            log.warning("%s", error)
        except Exception as error:  # of this cell alone
            traces.write_failure(f"trace: {format_exception(error)}")
            log.debug("trace failed", exc_info=True)


def _trace(cell: Cell, folder: CellFolder, traces: TraceFolder, pool: ModelPool) -> None:
    task = cell.load_task()
    samples = {sample.id: sample for sample in folder.good_samples()}
    chunks = chunked(task.prompts(cell.n, cell.seed), cell.batch)
    wanted = [[prompt.id for prompt in chunk if prompt.id in samples] for chunk in chunks]
    pending = [number for number, ids in enumerate(wanted) if not set(ids) <= set(traces.prompts(number) or ())]
    if not pending:
        return
    method = pool.method(cell)
    limits = Limits(cell.max_new_tokens, method.target.eos_ids, task.stop)
    done = len(samples) - sum(len(wanted[number]) for number in pending)
    with Bars([f"tracing {name}" for name in display_names([cell])], [done], len(samples)) as bars:
        for number in pending:
            runs, columns, threshold = _decode(cell, task, method, limits, chunks[number])
            for run in runs:
                if run.prompt.id in samples:
                    check_same(run, samples[run.prompt.id])
                    bars.advance(0, run)
            rows = [one for one in columns if one["prompt"] in samples]
            traces.write(number, wanted[number], rows, threshold)


def _decode(cell: Cell, task: Task, method: Method, limits: Limits,
            chunk: list[Prompt]) -> tuple[list[Answer], list[dict[str, Any]], Threshold | None]:
    """The answers of a batch, and their columns for each prompt and turn."""
    found: dict[str, Traced] = {}
    runs = answer(method, chunk, limits, lambda prompt, turn: stream_name(cell, task, prompt, turn),
                  decode=decoder(found))
    columns, threshold = [], None
    for run in runs:
        for turn in range(len(run.turn_tokens)):
            trace = found[stream_name(cell, task, run.prompt, turn)]
            if trace.threshold is not None:
                threshold = Threshold(**asdict(trace.threshold))
            if trace.columns:
                words = WORDS[trace.columns["clause"]]
                columns.append({"prompt": run.prompt.id, "turn": turn, **trace.columns, "clause": words})
    return runs, columns, threshold


def check_same(run: Answer, sample: Sample) -> None:
    """Raise TraceMismatch if the two passes differ in what they decoded."""
    if run.error is not None:
        raise TraceMismatch(f"{run.prompt.id}: {run.error}")
    for name in SAME:
        if getattr(run, name) != getattr(sample, name):
            raise TraceMismatch(f"{run.prompt.id}: the untimed pass differs from the timed one in {name}: models or "
                                "kernels have changed since the measurement; remove the cell's folder to measure it "
                                "again")
