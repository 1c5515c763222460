"""Made-up cells with round numbers, summarised by the real code, and small reports to lay out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from results.metrics.summary import Summary, summarise
from results.reports.grid import Outcome
from results.reports.spec import FigureSpec, TableSpec
from results.store.sample import Compared, FailedSample, Sample, Timed, TimedRun


def sample(id: str, output_ids: Sequence[int] = (0,), **fields: Any) -> Sample:
    """A sample without cycles, scored 1, where `fields` say nothing else; cycles end with a token of
    the target."""
    ids, committed = list(output_ids), fields.get("committed", ())
    return replace(
        Sample(
            id=id,
            prompt_sha256=sha256(id.encode()).hexdigest(),
            output_ids=ids,
            texts=[""],
            turn_tokens=[len(ids)],
            committed=[],
            accepted=[tokens - 1 for tokens in committed],
            nodes=[],
            levels=[],
            relaxed=0,
            greedier=0,
            drafted=0,
            pruned=0,
            finish=["eos"],
            score=1.0,
            answer=None,
            details={},
            nll=None,
            prompt_tokens=1,
        ),
        **fields,
    )


def run(one: Sample, decode_s: float, prefill_s: float = 0.5) -> TimedRun:
    """What the clock said while the sample was decoded once more."""
    return TimedRun(len(one.output_ids), len(one.committed), prefill_s, decode_s)


def compared(
    own: Sample,
    base: Sample | None = None,
    *,
    decode_s: float = 1.0,
    base_decode_s: float = 2.0,
    prefill_s: float = 0.5,
    started: str = "2026-01-01T00:00:00+00:00",
) -> Compared:
    """A timed sample beside its baseline; without one it is the autoregressive cell's own."""
    other = None if base is None else run(base, base_decode_s, prefill_s)
    ran = run(own, decode_s, prefill_s)
    timed = Timed(started, "host", "boot", threads=2, id=own.id, own=ran, baseline=other)
    return Compared(own, own if base is None else base, timed)


def summed(
    records: Iterable[Compared | FailedSample], metric: str = "exact_match", proportion: bool = True
) -> Summary:
    return summarise(records, metric=metric, proportion=proportion)


@cache
def made_up(
    *,
    speedup: float = 2.0,
    right: int = 3,
    n: int = 4,
    accepted: int = 2,
    failed: int = 0,
    autoregressive: bool = False,
) -> Outcome:
    """A measured cell: `n` prompts of ten cycles with `accepted` draft tokens each, of which the
    first `right` are answered rightly; autoregressive decoding makes 100 tokens/s and answers all
    rightly."""
    records: list[Compared | FailedSample] = []
    accepted = 0 if autoregressive else accepted
    for i in range(n):
        ids = list(range(1 + 10 * (accepted + 1)))
        seconds = len(ids) / 100 * (1 + i / 10)
        own = sample(f"p{i}", ids, score=float(i < right), committed=[accepted + 1] * 10)
        alone = sample(f"p{i}", ids, committed=[1] * (len(ids) - 1))
        factor = 1 if autoregressive else speedup * (1 + i / 50)
        one = compared(
            own,
            None if autoregressive else alone,
            decode_s=seconds / factor,
            base_decode_s=seconds,
            prefill_s=seconds / 10,
        )
        records.append(one)
    records += [FailedSample(f"f{i}", "boom") for i in range(failed)]
    return Outcome.measured(summed(records))


def with_values(outcome: Outcome, **values: Any) -> Outcome:
    """The outcome with these values in its summary."""
    assert outcome.summary is not None
    return replace(outcome, summary=outcome.summary.with_values(**values))


REPORTS = Path(__file__).with_name("synthetic_reports.yaml").read_text(encoding="utf-8")


def table_spec(**changes) -> TableSpec:
    return TableSpec.model_validate(yaml.safe_load(REPORTS)["demo"] | changes)


def choice_spec(**changes) -> TableSpec:
    return table_spec(**yaml.safe_load(REPORTS)["choice"] | changes)


def figure_spec(axes: Mapping[str, Any], figure: Mapping[str, Any], **changes) -> FigureSpec:
    """A figure of these axes, which its `figure` draws."""
    spec = {"name": "f", "title": "F", "kind": "figure", "axes": axes, "figure": figure}
    return FigureSpec.model_validate(spec | changes)


def full_grid(spec: TableSpec | FigureSpec, n: int = 4) -> dict:
    """Every point measured, each at its own speedup."""
    grid = {}
    for i, point in enumerate(spec.points()):
        method = spec.entries(point.coords).get("Method")
        grid[point.coords] = made_up(
            speedup=1.5 + i / 10,
            right=1 + i % 4,
            accepted=1 + i % 5,
            n=n,
            autoregressive=method is not None and method.baseline,
        )
    return grid
