"""Audit ARC-Decode's bound (Table 5): does it hold for the draft tokens that a traced cell accepted?

For an accepted token x and the target's argmax t, the true next-step divergence is the JS divergence between the
target's next distributions after x and after t, as in calibration (nats, union of both top 128). The bound is
min(U_emb, U_logit) of the trace. Divergence and bounds are 0 where x = t. Each of the two is calibrated to hold at
1 - delta; that guarantees 1 - 2 delta for the smaller of both, so each is audited too. The audit is a
separate pass after the trace; it changes neither samples nor trace."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.reports.plan import COVERAGE, Plan
from bench.run.answer import context
from methods.training.rules.arc import next_step_js
from results.metrics.intervals import proportion_interval
from results.store.errors import StoreError, format_exception
from results.store.traces import EMITTED, KEPT, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.run.models import ModelPool
    from bench.run.requested_cell import RequestedCell
    from bench.run.session import Session
    from results.store.sample import Sample
    from tasks.base import Prompt

log = logging.getLogger(__name__)
TOP = 128
COLUMNS = ["prompt", "turn", "cycle", "depth", "clause", "token", "top1", "u_emb", "u_logit"]


def audit(plans: Iterable[Plan], session: Session) -> None:
    """Audit the traced cells of the reports that show how often the bound holds."""
    bounded = [plan for plan in plans if COVERAGE in plan.spec.metrics()]
    if folders := [session.folder(cell) for plan in bounded for cell in plan.cells.values()]:
        audit_cells(folders, session.engines.lab)


def audit_cells(folders: Sequence[RequestedCell], pool: ModelPool) -> None:
    """Audit each traced cell once and store the result in its folder. Traces without bounds are skipped."""
    for folder in folders:
        traces = TraceFolder(folder, folder.ids)
        audit = folder.record(COVERAGE)
        if folder.measured() is None or not traces.exists() or (audit is not None and audit["asked"] == folder.cell.n):
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


def coverage(frame: pd.DataFrame, divergent: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Shares for which a bound holds, with Wilson intervals: the smaller bound for all accepted tokens; for those that
    are not the target's argmax, whose (JS, U_emb, U_logit) are `divergent`, the smaller one and each by itself."""
    accepted, differing = int(frame["clause"].isin(KEPT).sum()), len(divergent)
    broken = sum(js > min(bounds) for js, *bounds in divergent)
    shares = {
        "coverage": (broken, accepted), "coverage_differing": (broken, differing),
        "coverage_emb": (sum(js > emb for js, emb, _ in divergent), differing),
        "coverage_logit": (sum(js > logit for js, _, logit in divergent), differing),
    }
    found: dict[str, Any] = {"accepted": accepted, "differing": differing}
    for name, (faults, of) in shares.items():
        found |= {name: 1 - faults / of if of else None, f"{name}_ci95": proportion_interval(of - faults, of)}
    return found


def divergences(cell: Cell, pool: ModelPool, samples: Sequence[Sample],
                frame: pd.DataFrame) -> list[tuple[float, float, float]]:
    """(JS, U_emb, U_logit) of each accepted draft token that is not the target's argmax, answer by answer."""
    target = pool.load(cell).method.target
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    found: list[tuple[float, float, float]] = []
    for sample in samples:
        for ids, answer, path in _turns(target, prompts[sample.id], sample, frame[frame["prompt"] == sample.id]):
            chosen = path[path["clause"].isin(KEPT) & (path["token"] != path["top1"])]
            argmax: dict[int, int] = dict(zip(chosen.index.tolist(), chosen["top1"].tolist(), strict=True))
            js = next_step_js(target, ids, answer, argmax, TOP)
            found += [(js[at], float(chosen["u_emb"][at]), float(chosen["u_logit"][at])) for at in argmax]
    return found


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
