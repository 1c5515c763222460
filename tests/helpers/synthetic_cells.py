"""Made-up cells with round numbers, summarised by the real code, and small reports to lay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from results.metrics.paired import PAIRED, by_item
from results.metrics.summary import summarise
from results.reports.grid import Outcome
from results.reports.spec import TableSpec
from results.store.sample import Baseline, FailedSample, Record, Sample


def sample(id: str, output_ids: Sequence[int] = (0,), **fields: Any) -> Sample:
    """A sample without cycles, decoded in 1 s, prefilled in 0.5 s, scored 1 and without a baseline, where `fields` say
    nothing else."""
    ids = list(output_ids)
    return replace(Sample(
        id=id, output_ids=ids, text="", texts=[""], turn_tokens=[len(ids)], committed=[], accepted=[], relaxed=0,
        greedier=0, drafted=0, pruned=0, prefill_s=0.5, decode_s=1.0, finish=["eos"], score=1.0, answer=None,
        details={}, seed=0, nll=None, prompt_tokens=1, baseline=None), **fields)


def baseline(output_ids: Sequence[int] = (0,), **fields: Any) -> Baseline:
    """A baseline decoded in 2 s, prefilled in 0.5 s and scored 1, where `fields` say nothing else."""
    return replace(Baseline(list(output_ids), decode_s=2.0, prefill_s=0.5, score=1.0, finish=["eos"]), **fields)


@cache
def made_up(*, speedup: float = 2.0, right: int = 3, n: int = 4, accepted: int = 2, failed: int = 0,
            autoregressive: bool = False, metric: str = "exact_match") -> Outcome:
    """A measured cell: `n` prompts of ten cycles with `accepted` draft tokens each, of which the first `right` are
    answered rightly; autoregressive decoding makes 100 tokens/s and answers all rightly."""
    records: list[Record] = []
    accepted = 0 if autoregressive else accepted
    for i in range(n):
        ids = list(range(1 + 10 * (accepted + 1)))
        seconds = len(ids) / 100 * (1 + i / 10)
        records.append(sample(
            f"p{i}", ids, committed=[accepted + 1] * 10, accepted=[accepted] * 10, prefill_s=0.1,
            decode_s=seconds / (1 if autoregressive else speedup * (1 + i / 50)), score=float(i < right),
            baseline=None if autoregressive else baseline(ids, decode_s=seconds, prefill_s=0.1),
        ))
    records += [FailedSample(f"f{i}", "boom") for i in range(failed)]
    items = {name: by_item(name, [record for record in records if isinstance(record, Sample)]) for name in PAIRED}
    return Outcome.measured(summarise(records, metric=metric, proportion=True), items=items)


def table_spec(**changes) -> TableSpec:
    """Two models x three methods x two tasks; Alpha is a pair of the published test file, Beta is not."""
    spec = {
        "name": "demo", "title": "A demo", "kind": "table", "base": ["n=4"],
        "axes": {
            "Model": [{"label": "Alpha", "overrides": ["pair=alpha"], "published": "V 13B"},
                      {"label": "Beta", "overrides": ["pair=beta"]}],
            "Method": [{"label": "AR", "overrides": ["method=ar"], "baseline": True},
                       {"label": "SpS", "overrides": ["method=sps", "draft.length=7"]},
                       {"label": "MARS & co", "overrides": ["method=mars"], "published": "MARS"}],
            "Task": [{"label": "GSM8K", "overrides": ["task=gsm8k"]},
                     {"label": "mini_code", "overrides": ["task=mini_code"], "published": "HumanEval"}],
        },
        "rows": ["Model", "Method"], "columns": ["Task"], "mean": "Mean", "values": ["speedup", "tau"],
    }
    return TableSpec.model_validate(spec | changes)


def full_grid(spec: TableSpec, n: int = 4) -> dict:
    """Every point measured, each at its own speedup."""
    grid = {}
    for i, point in enumerate(spec.points()):
        plain = spec.entries(point.coords).get("Method")
        plain = plain is not None and plain.baseline
        grid[point.coords] = made_up(speedup=1.5 + i / 10, right=1 + i % 4, accepted=1 + i % 5, n=n,
                                     autoregressive=plain)
    return grid
