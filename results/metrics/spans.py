"""Metrics of answers that think first, by span: up to the mark that ends the reasoning, and behind
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.metrics.answers import LENGTH
from results.metrics.metric import SHARE, WILSON, Metric, Sums
from results.store.sample import Sample

SPANS = (
    Metric(
        "thinking_share",
        "Thinking",
        "%",
        1,
        None,
        "Emitted tokens up to the mark that ends a reasoning (task.think_end, or one that models "
        "have), over all. A turn that reached the length limit without one was thinking.",
        estimator=SHARE,
    ),
    Metric(
        "thinking_cut",
        "Cut while thinking",
        "%",
        1,
        "lower",
        "Answers of which a turn reached the length limit before that mark. Interval: Wilson.",
        estimator=WILSON,
    ),
    *(
        Metric(
            f"tau_{name}",
            f"τ, {name}",
            "",
            2,
            "higher",
            f"τ of the cycles that begin {where} that mark. Interval: bootstrap over prompts.",
        )
        for name, where in (("thinking", "before"), ("answer", "behind"))
    ),
)


def span_metrics(
    samples: Sequence[Sample], thinking: Mapping[str, Sequence[int | None]]
) -> dict[str, Sums]:
    """The sums of `SPANS`; empty where no turn has a mark. `thinking`: prompt -> of each turn the
    tokens up to its mark, which count as thinking; None where it has none."""
    if all(end is None for turns in thinking.values() for end in turns):
        return {}
    rows: dict[str, list[tuple[int, int]]] = {metric.name: [] for metric in SPANS}
    for sample in samples:
        cycles, inside, is_cut = iter(sample.committed), 0, False
        counted = {"tau_thinking": (0, 0), "tau_answer": (0, 0)}  # tokens, cycles
        turns = zip(sample.turn_tokens, thinking[sample.id], sample.finish, strict=True)
        for tokens, end, finish in turns:
            without_end = end is None and finish == LENGTH
            until = tokens if without_end else end or 0
            place = 1  # the first token comes from the prefill
            while place < tokens:
                span = "tau_thinking" if place < until else "tau_answer"
                committed = next(cycles)
                counted[span] = counted[span][0] + committed, counted[span][1] + 1
                place += committed
            inside, is_cut = inside + until, is_cut or without_end
        rows["thinking_share"].append((inside, len(sample.output_ids)))
        rows["thinking_cut"].append((int(is_cut), 1))
        for name, (tokens, passes) in counted.items():
            if passes:
                rows[name].append((tokens, passes))
    return {name: Sums.of(of_samples) for name, of_samples in rows.items()}
