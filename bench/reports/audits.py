"""What is computed once more from the answers and traces of a report's cells, a record in the
folder of each.

ARC-Decode's bound (Table 5): does it hold for the draft tokens that a traced cell accepted? For an
accepted token x and the target's argmax t, the true next-step divergence is the JS divergence
between the target's next distributions after x and after t, as in calibration (nats, union of both
top 128). The bound is min(U_emb, U_logit) of the trace. Divergence and bounds are 0 where x = t.
Each of the two is calibrated to hold at 1 - delta; that guarantees 1 - 2 delta for the smaller of
both, so each is audited too.

How alike answers are, by models that compare meanings (`similarity`): those of DropMatch's heads
(Figure 3), and what would have followed a rejected draft token (ARC-Decode, Figure 2): what was
compared, and measure -> series -> numbers. What was compared before is not compared again."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.reports.meaning import MeaningModels
from bench.reports.plan import AGREEMENT, COVERAGE, Plan, of_meanings
from bench.run.answer import context, limits_of, stream_name
from methods.decode import Request, generate
from methods.divergence import next_step_js
from results.metrics.intervals import proportion_interval
from results.store.errors import StoreError, format_exception, one_line
from results.store.traces import EMITTED, KEPT, Clause, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

    from bench.config.cell import Cell
    from bench.run.models import ModelPool
    from bench.run.requested_cell import RequestedCell
    from bench.run.session import Session
    from methods.method import Method
    from results.store.sample import Sample
    from tasks.base import Prompt

log = logging.getLogger(__name__)
TOP = 128
BOUNDS = ["prompt", "turn", "cycle", "depth", "clause", "token", "top1", "u_emb", "u_logit"]
REJECTED, AGAIN = "rejected token", "same token, other random numbers"
COLUMNS = ["prompt", "turn", "cycle", "depth", "clause", "token"]
BATCH = 16


def audit(plans: Iterable[Plan], session: Session) -> None:
    """Audit the traced cells of the reports that show how often the bound holds."""
    bounded = [plan for plan in plans if COVERAGE in plan.spec.metrics()]
    if folders := [session.folder(cell) for plan in bounded for cell in plan.cells.values()]:
        audit_cells(folders, session.engines.native)


def audit_cells(folders: Sequence[RequestedCell], pool: ModelPool) -> None:
    """Audit each traced cell once and store the result in its folder. Traces without bounds are
    skipped."""
    for folder in folders:
        traces = TraceFolder(folder, folder.ids)
        audit = folder.record(COVERAGE)
        if (
            folder.measured() is None
            or not traces.exists()
            or (audit is not None and audit["asked"] == folder.cell.n)
        ):
            continue
        frame = traces.frame(BOUNDS)
        if "u_emb" not in frame:
            continue
        try:
            with folder.lock(wait=True):
                differing = divergences(folder.cell, pool, folder.good_samples(), frame)
                folder.write_record(
                    COVERAGE, {"asked": folder.cell.n, **coverage(frame, differing)}
                )
        except StoreError as error:
            log.warning("%s", error)
        except (
            Exception
        ) as error:  # affects this cell only; its table shows that it was not audited
            log.error("%s: not audited: %s", folder.key, format_exception(error))


def coverage(
    frame: pd.DataFrame, divergent: Sequence[tuple[float, float, float]]
) -> dict[str, Any]:
    """Shares for which a bound holds, with Wilson intervals: the smaller bound for all accepted
    tokens; for those that are not the target's argmax, whose (JS, U_emb, U_logit) are `divergent`,
    the smaller one and each by itself."""
    accepted, differing = int(frame["clause"].isin(KEPT).sum()), len(divergent)
    broken = sum(js > min(bounds) for js, *bounds in divergent)
    shares = {
        "coverage": (broken, accepted),
        "coverage_differing": (broken, differing),
        "coverage_emb": (sum(js > emb for js, emb, _ in divergent), differing),
        "coverage_logit": (sum(js > logit for js, _, logit in divergent), differing),
    }
    found: dict[str, Any] = {"accepted": accepted, "differing": differing}
    for name, (faults, of) in shares.items():
        found |= {
            name: 1 - faults / of if of else None,
            f"{name}_ci95": proportion_interval(of - faults, of),
        }
    return found


def divergences(
    cell: Cell, pool: ModelPool, samples: Sequence[Sample], frame: pd.DataFrame
) -> list[tuple[float, float, float]]:
    """(JS, U_emb, U_logit) of each accepted draft token that is not the target's argmax, answer by
    answer."""
    target = pool.load(cell).method.target
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    found: list[tuple[float, float, float]] = []
    for sample in samples:
        for ids, answer, path in _turns(
            target, prompts[sample.id], sample, frame[frame["prompt"] == sample.id]
        ):
            chosen = path[path["clause"].isin(KEPT) & (path["token"] != path["top1"])]
            argmax: dict[int, int] = dict(
                zip(chosen.index.tolist(), chosen["top1"].tolist(), strict=True)
            )
            js = next_step_js(target, ids, answer, argmax, TOP)
            found += [
                (js[at], float(chosen["u_emb"][at]), float(chosen["u_logit"][at])) for at in argmax
            ]
    return found


def _turns(
    target: Any, prompt: Prompt, sample: Sample, frame: pd.DataFrame
) -> Iterator[tuple[list[int], list[int], pd.DataFrame]]:
    """For each turn: its context, its answer, and the trace of the emitted tokens, indexed by
    position in it."""
    import pandas as pd

    start = 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer = sample.output_ids[start : start + tokens]
        emitted = frame[(frame["turn"] == turn) & frame["clause"].isin(EMITTED)]
        path = emitted.sort_values(["cycle", "depth"], kind="stable").head(tokens - 1)
        path.index = pd.RangeIndex(1, len(path) + 1)  # the first token comes from the prefill
        yield context(target, prompt, sample.texts[:turn]), answer, path
        start += tokens


def compare_meanings(plan: Plan, session: Session) -> int:
    """Compare the answers of a figure that shows how alike they are. Returns 1 where that failed,
    with a line on the error stream, else 0."""
    if (figure := of_meanings(plan.spec)) is None:
        return 0
    measures, series = figure.meanings, figure.series
    models = cache(lambda device: MeaningModels(session.settings.similarity, device, measures))
    measured = {cell.name for cell in plan.cells.values() if session.compared(cell) is not None}
    groups = plan.groups(series) if series else [[cell] for cell in plan.cells.values()]
    work, status = compare_paths if series else continue_rejected, 0
    for group in groups:
        try:
            if cells := [cell for cell in group if cell.name in measured]:
                work(cells, session, models(cells[0].engine.device))
        except ValueError as error:  # a model that cannot be used, a record that cannot be read
            print(f"failed: {one_line(error)}", file=sys.stderr)
            status = 1
    return status


def compare_paths(cells: Sequence[Cell], session: Session, models: MeaningModels) -> None:
    """Compare the answers of every two of these cells, prompt by prompt; a series is another cell.
    Raises ModelError, StoreError."""
    texts = {
        cell.name: {
            sample.id: "\n\n".join(sample.texts) for sample in session.folder(cell).good_samples()
        }
        for cell in cells
    }
    common = sorted(set.intersection(*(set(of_cell) for of_cell in texts.values())))
    for cell in cells if common else ():
        folder = session.folder(cell)
        about = models.about(cell) | {"cells": list(texts), "prompts": len(common)}
        if (folder.record(AGREEMENT) or {}).get("about") == about:
            continue
        own = [texts[cell.name][prompt] for prompt in common]
        values = {
            measure: {
                name: models.score(
                    measure, "entailment", own, [of_cell[prompt] for prompt in common]
                )
                for name, of_cell in texts.items()
            }
            for measure in about["models"]
        }
        with folder.lock(wait=True):
            folder.write_record(AGREEMENT, {"about": about, "values": values})


@dataclass(frozen=True, slots=True)
class Fork:
    """A place where an answer is continued once more.

    series   REJECTED or AGAIN.
    start    tokens before the continuation: context and answer up to the fork, and the token that
             is forced.
    key      name of the random stream.
    room     tokens left until the answer's length limit.
    own      the answer's own tokens from the fork on.
    """

    series: str
    start: tuple[int, ...]
    key: str
    room: int
    own: tuple[int, ...]


def continue_rejected(cells: Sequence[Cell], session: Session, models: MeaningModels) -> None:
    """Force rejected tokens of a traced cell, continue its answers under the same settings, and
    compare with their own continuations. At temperature above 0 two continuations of one token
    differ too: the emitted token, continued once more with other random numbers, is the reference.
    Raises ModelError, StoreError."""
    [cell] = cells
    folder, pool = session.folder(cell), session.engines.native
    about = models.about(cell) | {"positions": models.options.positions}
    traces = TraceFolder(folder, folder.ids)
    if not traces.exists() or (folder.record(AGREEMENT) or {}).get("about") == about:
        return
    pool.keep_only([cell])
    method, frame = pool.load(cell).method, traces.frame(COLUMNS)
    prompts = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    forks = [
        fork
        for sample in folder.good_samples()
        for fork in forks_of(
            cell,
            method,
            prompts[sample.id],
            sample,
            frame[frame["prompt"] == sample.id],
            models.options.positions,
        )
    ]
    continued = continuations(cell, method, forks)
    own = [method.target.decode(list(fork.own)) for fork in forks]
    values: dict[str, dict[str, list[float]]] = {}
    for measure in about["models"]:
        scores = models.score(measure, "contradiction", own, continued) if forks else []
        values[measure] = {
            series: [
                score for fork, score in zip(forks, scores, strict=True) if fork.series == series
            ]
            for series in (REJECTED, AGAIN)
        }
    with folder.lock(wait=True):
        folder.write_record(AGREEMENT, {"about": about, "values": values})


def forks_of(
    cell: Cell, method: Method, prompt: Prompt, sample: Sample, frame: pd.DataFrame, positions: int
) -> Iterator[Fork]:
    """The forks of one answer: at `positions` evenly spread places of each turn where tokens were
    rejected, one for each rejected token and one for the emitted token. `frame`: the trace of the
    prompt."""
    task, start = cell.load_task(), 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer, start = sample.output_ids[start : start + tokens], start + tokens
        ids = context(method.target, prompt, sample.texts[:turn])
        stream = stream_name(cell, task, prompt, turn)
        rejected = rejections(frame[frame["turn"] == turn], tokens)
        chosen = (
            np.linspace(0, len(rejected) - 1, min(positions, len(rejected))).round().astype(int)
        )
        for at in np.array(sorted(rejected), int)[chosen].tolist():
            seeds = [
                (AGAIN, answer[at]),
                *((REJECTED, token) for token in rejected[at] if token != answer[at]),
            ]
            for series, token in seeds:
                yield Fork(
                    series,
                    (*ids, *answer[:at], token),
                    f"{stream}/{at}/{token}",
                    cell.max_new_tokens - at - 1,
                    tuple(answer[at:]),
                )


def rejections(frame: pd.DataFrame, tokens: int) -> dict[int, list[int]]:
    """Position in an answer of so many tokens -> the draft tokens that were rejected there.
    `frame`: the trace of the turn; position 0 comes from the prefill."""
    path = (
        frame[frame["clause"].isin(EMITTED)]
        .sort_values(["cycle", "depth"], kind="stable")
        .head(tokens - 1)
    )
    places = {
        place: at
        for at, place in enumerate(zip(path["cycle"], path["depth"], strict=True), start=1)
    }
    found: dict[int, list[int]] = {}
    rejected = frame[frame["clause"] == Clause.REJECTED]
    for cycle, depth, token in zip(
        rejected["cycle"], rejected["depth"], rejected["token"], strict=True
    ):
        if (cycle, depth) in places:  # not beyond the end of the answer
            found.setdefault(places[cycle, depth], []).append(int(token))
    return found


def continuations(cell: Cell, method: Method, forks: Sequence[Fork]) -> list[str]:
    """The text that each fork leads to, the forced token included."""
    limits, texts = limits_of(cell, method.target, cell.load_task()), []
    for batch in (forks[i : i + BATCH] for i in range(0, len(forks), BATCH)):
        open_forks = [
            fork for fork in batch if fork.room > 0 and fork.start[-1] not in limits.eos_ids
        ]
        runs = (
            generate(method, [Request(list(fork.start), fork.key) for fork in open_forks], limits)
            if open_forks
            else []
        )
        ends = {fork: run.output_ids for fork, run in zip(open_forks, runs, strict=True)}
        texts += [
            method.target.decode([fork.start[-1], *ends.get(fork, [])[: max(fork.room, 0)]])
            for fork in batch
        ]
    return texts
