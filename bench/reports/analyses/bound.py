"""Audit ARC-Decode's bound (Table 5): does it hold for the draft tokens that a traced cell accepted?

For an accepted token x and the target's argmax t, the true next-step divergence is the JS divergence between the
target's next distributions after x and after t, as in calibration (nats, union of both top 128). The bound is
min(U_emb, U_logit) of the trace. Both are 0 where x = t. The audit is a separate pass after the trace; it changes
neither samples nor trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.reports.analyses import COVERAGE
from bench.run.answer import context
from methods.training.rules.arc import next_step_js
from results.metrics.intervals import proportion_interval
from results.store.clauses import EMITTED, KEPT
from results.store.errors import StoreError
from results.store.reasons import format_exception
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.run.models import ModelPool
    from bench.run.requested_cell import RequestedCell
    from results.store.sample import Sample
    from tasks.base import Prompt

log = logging.getLogger(__name__)
TOP = 128
COLUMNS = ["prompt", "turn", "cycle", "depth", "clause", "token", "top1", "u_emb", "u_logit"]


def audit_cells(folders: Sequence[RequestedCell], pool: ModelPool) -> None:
    """Audit each traced cell once and store the result in its folder. Traces without bounds are skipped."""
    for folder in folders:
        traces = TraceFolder(folder, folder.selection())
        audit = folder.record(COVERAGE)
        if folder.summary() is None or not traces.exists() or (audit is not None and audit["asked"] == folder.cell.n):
            continue
        frame = traces.frame(COLUMNS)
        if "u_emb" not in frame:
            continue
        try:
            with folder.lock(wait=True):
                differing = divergences(folder.cell, pool, folder.good_samples(), frame)
                folder.write_record(COVERAGE, {"asked": folder.cell.n, **coverage(frame, differing)})
        except StoreError as error:
            log.warning("%s", error)
        except Exception as error:  # affects this cell only; its table shows that it was not audited
            log.error("%s: not audited: %s", folder.key, format_exception(error))


def coverage(frame: pd.DataFrame, divergent: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Shares for which the bound holds, with Wilson intervals: of all accepted tokens, and of those that are not the
    target's argmax, whose (JS, bound) are `divergent`."""
    accepted, differing = int(frame["clause"].isin(KEPT).sum()), len(divergent)
    broken = sum(js > bound for js, bound in divergent)
    return {
        "accepted": accepted, "differing": differing,
        "coverage": 1 - broken / accepted if accepted else None,
        "coverage_ci95": proportion_interval(accepted - broken, accepted),
        "coverage_differing": 1 - broken / differing if differing else None,
        "coverage_differing_ci95": proportion_interval(differing - broken, differing),
    }


def divergences(cell: Cell, pool: ModelPool, samples: Sequence[Sample],
                frame: pd.DataFrame) -> list[tuple[float, float]]:
    """(JS, bound) of each accepted draft token that is not the target's argmax, answer by answer."""
    target = pool.method(cell).target
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    pairs: list[tuple[float, float]] = []
    for sample in samples:
        for ids, answer, path in _turns(target, prompts[sample.id], sample, frame[frame["prompt"] == sample.id]):
            chosen = path[path["clause"].isin(KEPT) & (path["token"] != path["top1"])]
            argmax: dict[int, int] = dict(zip(chosen.index.tolist(), chosen["top1"].tolist(), strict=True))
            js = next_step_js(target, ids, answer, argmax, TOP)
            bound = chosen[["u_emb", "u_logit"]].min(axis=1)
            pairs += [(js[at], float(bound[at])) for at in argmax]
    return pairs


def _turns(target: Any, prompt: Prompt, sample: Sample,
           frame: pd.DataFrame) -> Iterator[tuple[list[int], list[int], pd.DataFrame]]:
    """For each turn: its context, its answer, and the trace of the emitted tokens, indexed by position in it."""
    import pandas as pd

    start = 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer = sample.output_ids[start:start + tokens]
        emitted = frame[(frame["turn"] == turn) & frame["clause"].isin(EMITTED)]
        path = emitted.sort_values(["cycle", "depth"], kind="stable").head(tokens - 1)
        path.index = pd.RangeIndex(1, len(path) + 1)  # the first token comes from the prefill
        yield context(target, prompt, sample.texts[:turn]), answer, path
        start += tokens
