"""What is computed once more from the answers and traces of a report's cells, a record in the
folder of each.

The target with rounded weights, or at another temperature, beside the target on the answers of
plain decoding: prompt -> tokens, and the nats of each form.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.reports.meaning import MeaningModels
from bench.reports.plan import AGREEMENT, COVERAGE, CURRENCY, Plan, of_meanings
from bench.run.answer import context, limits_of, stream_name
from bench.run.auditing.cells import texts_of
from bench.run.auditing.currency import altered_nats
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


def audit(plans: Sequence[Plan], session: Session) -> None:
    """Alter the targets of the reports that show what this does, and audit the traced cells of
    those that show how often the bound holds."""
    wanted: dict[str, tuple[Cell, dict[str, None]]] = {}
    for plan in plans:
        for coords, cell in plan.cells.items():
            name = plan.spec.altered(coords)
            if name:
                plain = cell.baseline()
                wanted.setdefault(f"{plain.name} {plain.n}", (plain, {}))[1][name] = None
    for plain, names in wanted.values():
        alter(session.folder(plain), list(names), session.engines.native)
    bounded = [plan for plan in plans if COVERAGE in plan.spec.metrics()]
    if folders := [session.folder(cell) for plan in bounded for cell in plan.cells.values()]:
        audit_cells(folders, session.engines.native)


def alter(folder: RequestedCell, names: Sequence[str], pool: ModelPool) -> None:
    """Measure how far the target, altered in each of these ways, is from itself on the answers of
    plain decoding, and store that in its folder. Prompts that have it are not measured again."""
    try:
        record = folder.record(CURRENCY) or {"prompts": {}, "notes": {}}
        known = record["prompts"]
        lacking = [
            sample
            for sample in folder.good_samples()
            if not {*names} <= known.get(sample.id, {}).keys()
        ]
        if not lacking:
            return
        cell = folder.cell
        pool.keep_only([cell])
        target = pool.load(cell).method.target
        texts = texts_of(cell, lacking, target)
        nats, notes = altered_nats(target, names, texts, cell.decoding.sampling)
        for sample in lacking:
            known.setdefault(sample.id, {})["tokens"] = len(sample.output_ids)
            for name in names:
                known[sample.id][name] = 0.0
        for at, text in enumerate(texts):  # the turns of a prompt add up
            for name in names:
                known[text.prompt][name] += float(nats[name][at])
        with folder.lock(wait=True):
            folder.write_record(CURRENCY, {"prompts": known, "notes": record["notes"] | notes})
    except StoreError as error:
        log.warning("%s", error)
    # affects these rows only, which then say that they are missing
    except Exception as error:
        log.error("%s: the target was not altered: %s", folder.key, format_exception(error))


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
        # affects this cell only; its table shows that it was not audited
        except Exception as error:
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
    audit: dict[str, Any] = {"accepted": accepted, "differing": differing}
    for name, (faults, tokens) in shares.items():
        audit[name] = 1 - faults / tokens if tokens else None
        audit[f"{name}_ci95"] = proportion_interval(tokens - faults, tokens)
    return audit


def divergences(
    cell: Cell, pool: ModelPool, samples: Sequence[Sample], frame: pd.DataFrame
) -> list[tuple[float, float, float]]:
    """(JS, U_emb, U_logit) of each accepted draft token that is not the target's argmax, answer by
    answer."""
    target = pool.load(cell).method.target
    prompts = {prompt.id: prompt for prompt in cell.prompts()}
    bounded: list[tuple[float, float, float]] = []
    for sample in samples:
        trace = frame[frame["prompt"] == sample.id]
        for ids, answer, path in _turns(target, prompts[sample.id], sample, trace):
            chosen = path[path["clause"].isin(KEPT) & (path["token"] != path["top1"])]
            argmax = dict(zip(chosen.index.tolist(), chosen["top1"].tolist(), strict=True))
            js = next_step_js(target, ids, answer, argmax, TOP)
            bounds = zip(chosen["u_emb"].tolist(), chosen["u_logit"].tolist(), strict=True)
            bounded += [(js[at], *both) for at, both in zip(argmax, bounds, strict=True)]
    return bounded


def _turns(
    target: Any, prompt: Prompt, sample: Sample, frame: pd.DataFrame
) -> Iterator[tuple[list[int], list[int], pd.DataFrame]]:
    """For each turn: its context, its answer, and the trace of the emitted tokens, indexed by
    position in it."""
    import pandas as pd

    start = 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer = sample.output_ids[start : start + tokens]
        path = emitted(frame[frame["turn"] == turn], tokens)
        path.index = pd.RangeIndex(1, len(path) + 1)
        yield context(target, prompt, sample.texts[:turn]), answer, path
        start += tokens


def emitted(frame: pd.DataFrame, tokens: int) -> pd.DataFrame:
    """Of the trace of a turn of so many tokens, its tokens in order, without the first one: that
    comes from the prefill."""
    path = frame[frame["clause"].isin(EMITTED)].sort_values(["cycle", "depth"], kind="stable")
    return path.head(tokens - 1)


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
        answers = {name: [by_id[prompt] for prompt in common] for name, by_id in texts.items()}
        values = {
            measure: {
                name: models.score(measure, "entailment", answers[cell.name], others)
                for name, others in answers.items()
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
    rest     the answer's own tokens from the fork on.
    """

    series: str
    start: tuple[int, ...]
    key: str
    room: int
    rest: tuple[int, ...]


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
    prompts = {prompt.id: prompt for prompt in cell.prompts()}
    forks: list[Fork] = []
    for sample in folder.good_samples():
        trace, prompt = frame[frame["prompt"] == sample.id], prompts[sample.id]
        forks += forks_of(cell, method, prompt, sample, trace, models.options.positions)
    continued = continuations(cell, method, forks)
    rests = [method.target.decode(list(fork.rest)) for fork in forks]
    values: dict[str, dict[str, list[float]]] = {}
    for measure in about["models"]:
        scores = models.score(measure, "contradiction", rests, continued) if forks else []
        values[measure] = {REJECTED: [], AGAIN: []}
        for fork, score in zip(forks, scores, strict=True):
            values[measure][fork.series].append(score)
    with folder.lock(wait=True):
        folder.write_record(AGREEMENT, {"about": about, "values": values})


def forks_of(
    cell: Cell, method: Method, prompt: Prompt, sample: Sample, frame: pd.DataFrame, positions: int
) -> Iterator[Fork]:
    """The forks of one answer: at `positions` evenly spread places of each turn where tokens were
    rejected, one for each rejected token and one for the emitted token. `frame`: the trace of the
    prompt."""
    task, read = cell.load_task(), 0
    for turn, tokens in enumerate(sample.turn_tokens):
        answer = sample.output_ids[read : read + tokens]
        read += tokens
        ids = context(method.target, prompt, sample.texts[:turn])
        stream = stream_name(cell, task, prompt, turn)
        rejected = rejections(frame[frame["turn"] == turn], tokens)
        places = np.linspace(0, len(rejected) - 1, min(positions, len(rejected))).round()
        for at in np.array(sorted(rejected), int)[places.astype(int)].tolist():
            others = [token for token in rejected[at] if token != answer[at]]
            for series, token in [(AGAIN, answer[at]), *((REJECTED, token) for token in others)]:
                start = (*ids, *answer[:at], token)
                room = cell.max_new_tokens - at - 1
                yield Fork(series, start, f"{stream}/{at}/{token}", room, tuple(answer[at:]))


def rejections(frame: pd.DataFrame, tokens: int) -> dict[int, list[int]]:
    """Position in an answer of so many tokens -> the draft tokens that were rejected there.
    `frame`: the trace of the turn."""
    path = emitted(frame, tokens)[["cycle", "depth"]].itertuples(index=False, name=None)
    positions = {place: position for position, place in enumerate(path, start=1)}
    rejected: dict[int, list[int]] = {}
    columns = ["cycle", "depth", "token"]
    rows = frame[frame["clause"] == Clause.REJECTED][columns]
    for *place, token in rows.itertuples(index=False, name=None):
        if (position := positions.get(tuple(place))) is not None:  # not beyond the answer's end
            rejected.setdefault(position, []).append(int(token))
    return rejected


def continuations(cell: Cell, method: Method, forks: Sequence[Fork]) -> list[str]:
    """The text that each fork leads to, the forced token included."""
    limits = limits_of(cell, method.target, cell.load_task())
    open_forks = [fork for fork in forks if fork.room > 0 and fork.start[-1] not in limits.eos_ids]
    ends: dict[Fork, list[int]] = {}
    for i in range(0, len(open_forks), BATCH):
        batch = open_forks[i : i + BATCH]
        runs = generate(method, [Request(list(fork.start), fork.key) for fork in batch], limits)
        ends |= {fork: run.output_ids[: fork.room] for fork, run in zip(batch, runs, strict=True)}
    return [method.target.decode([fork.start[-1], *ends.get(fork, [])]) for fork in forks]
