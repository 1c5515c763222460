"""The metrics, each declared once, in the rooms named here: tables, figures, pages and verdicts
take all they know of one from here."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from results.metrics import (
    acceptance,
    answers,
    clocks,
    distortion,
    equal_d,
    phases,
    quality,
    spans,
    trace_metrics,
)
from results.metrics.metric import Metric

ROOMS = (clocks, phases, acceptance, distortion, answers, quality, equal_d, spans, trace_metrics)


def declared_in(room: ModuleType) -> Iterator[Metric]:
    """The metrics of a module, single ones and those in tuples, in the order of its lines."""
    for value in vars(room).values():
        for member in value if isinstance(value, tuple) else (value,):
            if isinstance(member, Metric):
                yield member


METRICS: dict[str, Metric] = {metric.name: metric for room in ROOMS for metric in declared_in(room)}
JUDGED = frozenset(name for name, metric in METRICS.items() if metric.judged)
"""The metrics that an LLM judge gives."""
TIMED = frozenset(name for name, metric in METRICS.items() if metric.clock == "needed")
"""The metrics that need a timed pass."""
SPANS = frozenset(metric.name for metric in spans.SPANS)
"""The metrics by span, which take a tokenizer."""
CLOCKED = frozenset(name for name, metric in METRICS.items() if metric.clock)
"""The metrics that the clock has a part in: some ask for no timed pass, but use one."""


RENAMED = {
    "cap_hit_share": "truncated_share",
    "baseline_cap_hit_share": "baseline_truncated_share",
}
"""Old name of a metric -> its name."""


def metric(name: str) -> Metric:
    """Look up a metric by name. Raises ValueError for an unknown name."""
    if name in RENAMED:
        raise ValueError(f"metric {name!r} is now {RENAMED[name]!r}")
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}; one of: {', '.join(METRICS)}")
    return METRICS[name]
