"""Quantities of traces: what figures draw per position, and the metrics that only a trace holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from results.metrics.metric import WILSON, Metric, Sums
from results.store.errors import StoreError
from results.store.traces import EMITTED, KEPT, TESTED, TraceFolder

if TYPE_CHECKING:
    import pandas as pd

HEADS = 5
"""Dropout heads of the papers' tables."""
HEAD = 0.2
"""A token is in the head of a distribution if its probability is at least this share of the
largest."""


TRACED = (
    Metric(
        "coverage",
        "JS ≤ U_min",
        "%",
        1,
        "higher",
        "Accepted draft tokens for which ARC-Decode's bound holds: the JS divergence between the "
        "target's next distributions after this token and after its own argmax is at most U_min. "
        "Interval: Wilson.",
        estimator=WILSON,
    ),
    *(
        Metric(
            f"coverage_{name}",
            title,
            "%",
            1,
            "higher",
            "JS ≤ the bound among the accepted draft tokens that are not "
            "the target's argmax: U_min, and each of its two bounds by itself.",
            estimator=WILSON,
        )
        for name, title in (
            ("differing", "Where x ≠ t"),
            ("emb", "JS ≤ U_emb"),
            ("logit", "JS ≤ U_logit"),
        )
    ),
    *(
        Metric(
            f"majority_{i}",
            f"{i} agree",
            "%",
            2,
            None,
            f"Tested contexts in which exactly {i} dropout heads agree on a token (DropMatch, "
            "Table 2).",
        )
        for i in range(1, 6)
    ),
    *(
        Metric(
            f"majority_p_{i}",
            f"p, {i} agree",
            "",
            3,
            None,
            f"Mean probability of the token on which {i} dropout heads agree.",
        )
        for i in range(1, 6)
    ),
    *(
        Metric(
            f"js_{case}_{whose}",
            f"JS(c, {whose}), {case}",
            "",
            4,
            None,
            f"Mean JS divergence, nats, of {who} to the heads' centroid where {where} "
            "(DropMatch, Table 3).",
        )
        for case, where in (
            ("dispersed", "the draft is no farther from it than the farthest head"),
            (
                "concentrated",
                "the draft is farther than every head, but its token is the majority's",
            ),
        )
        for whose, who in (("draft", "the draft"), ("heads", "the dropout heads"))
    ),
    *(
        Metric(
            f"js_{case}_share",
            f"{case}",
            "%",
            1,
            None,
            f"Tested tokens that are {case}, see JS(c, ·), {case}.",
        )
        for case in ("dispersed", "concentrated")
    ),
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number per position of a trace.

    label    name in figures, with its unit
    columns  columns of the trace that it is computed from
    of       computes it from these columns
    rows     the positions that have it: emitted tokens, or contexts in which the first drafted
             sibling was tested
    """

    label: str
    columns: tuple[str, ...]
    of: Callable[[pd.DataFrame], pd.Series]
    rows: Literal["emitted", "contexts"] = "emitted"


def _column(label: str, name: str, rows: Literal["emitted", "contexts"] = "emitted") -> Quantity:
    return Quantity(label, (name,), lambda frame: frame[name], rows)


QUANTITIES: Mapping[str, Quantity] = {
    "z1": _column("largest logit z₁", "z1"),
    "z2": _column("second largest logit z₂", "z2"),
    "p1": _column("largest probability p₁", "p1"),
    "p2": _column("second largest probability p₂", "p2"),
    "ratio": Quantity("logit ratio z₂/z₁", ("z1", "z2"), lambda frame: frame["z2"] / frame["z1"]),
    "prob_ratio": Quantity(
        "probability ratio p₂/p₁", ("p1", "p2"), lambda frame: frame["p2"] / frame["p1"]
    ),
    "js": _column("JS(draft, target) (nats)", "js", "contexts"),
    "js_released": _column("JS as released (nats)", "js_released", "contexts"),
    "kl": _column("KL(target, draft) (nats)", "kl", "contexts"),
    "tv": _column("total variation", "tv", "contexts"),
}


def quantities(traces: TraceFolder, names: tuple[str, ...], tested: bool = False) -> pd.DataFrame:
    """Columns `names`, `clause` and `by_threshold`, one row per position at which all the
    quantities exist; `tested`: tested draft tokens in place of emitted tokens.

    Raises StoreError without traces, ValueError for quantities of different rows."""
    chosen = [QUANTITIES[name] for name in names]
    kinds = {quantity.rows for quantity in chosen}
    if len(kinds) > 1:
        raise ValueError(
            f"{', '.join(names)}: one panel cannot show both emitted tokens and drafted contexts"
        )
    read = {"clause", "rank", "by_threshold"}.union(*(quantity.columns for quantity in chosen))
    frame = traces.frame(sorted(read))
    rows = TESTED if tested else EMITTED
    frame = _contexts(frame) if kinds == {"contexts"} else frame[frame["clause"].isin(rows)]
    import pandas as pd  # takes half a second, which a dry run should not cost

    numbers = pd.DataFrame(
        {name: quantity.of(frame) for name, quantity in zip(names, chosen, strict=True)}
    )
    labelled = numbers.assign(clause=frame["clause"], by_threshold=frame["by_threshold"])
    known = labelled.loc[np.isfinite(numbers.to_numpy(float)).all(axis=1)]
    return pd.DataFrame(known)


def trace_metrics(
    traces: Sequence[TraceFolder], tokens: Mapping[str, int], temperature: float
) -> dict[str, Sums]:
    """Metrics of a cell that only its trace holds, as sums over prompts; empty without a trace,
    without those that the rule does not record.

    traces       of the cells that decoded the prompts: one, or several that have different prompts
    tokens       prompt -> emitted tokens
    temperature  that of the decoding

    out_of_head_1k             per 1,000 emitted tokens, the accepted draft tokens that the lossless
                               test rejects and whose probability is below `HEAD` times the largest
                               (`relative_probability`)
    majority_i, majority_p_i   of the tested contexts, the share in which i of the dropout heads
                               agree on a token and no more do, and that token's mean probability
                               there (DropMatch, Table 2)
    js_dispersed_draft, js_dispersed_heads, js_concentrated_…
                               mean JS of the draft, and of the heads, to the centroid, where eq. 6
                               keeps the token (dispersed) and where eq. 7 alone does (Table 3),
                               nats
    """
    columns = [
        "prompt",
        "clause",
        "rank",
        "majority",
        "majority_p",
        "votes",
        "js_centroid",
        "js_heads",
        "js_heads_max",
        "token",
        "strict",
        "p0",
        "p",
        "p1",
    ]
    try:
        import pandas as pd  # takes half a second, which a dry run should not cost

        frame = pd.concat([folder.frame(columns) for folder in traces], ignore_index=True)
    except StoreError:
        return {}
    if frame.empty:
        return {}
    prompts = frame["prompt"]
    metrics: dict[str, Sums] = {}
    if {"strict", "p0", "p", "p1"} <= set(frame):
        metrics |= _out_of_head(frame, tokens, temperature)
    if "majority" in frame:
        metrics |= _majorities(_contexts(frame), prompts)
    if "js_centroid" in frame:
        metrics |= _dispersion(frame[frame["clause"].isin(TESTED)], prompts)
    return metrics


def _majorities(contexts: pd.DataFrame, prompts: pd.Series) -> dict[str, Sums]:
    """`majority_i` and `majority_p_i`."""
    metrics: dict[str, Sums] = {}
    counts = _counts(contexts, prompts)
    for size in range(1, HEADS + 1):
        agreeing = contexts[contexts["majority"] == size]
        metrics |= _pooled(f"majority_{size}", _counts(agreeing, prompts), counts)
        metrics |= _mean(f"majority_p_{size}", agreeing, "majority_p", prompts)
    return metrics


def _dispersion(tested: pd.DataFrame, prompts: pd.Series) -> dict[str, Sums]:
    """`js_dispersed_…` and `js_concentrated_…`, with their shares."""
    metrics: dict[str, Sums] = {}
    within = tested["js_centroid"] <= tested["js_heads_max"]
    majority_only = ~within & (tested["votes"] == tested["majority"])
    for name, rows in (("dispersed", tested[within]), ("concentrated", tested[majority_only])):
        metrics |= _mean(f"js_{name}_draft", rows, "js_centroid", prompts)
        metrics |= _mean(f"js_{name}_heads", rows, "js_heads", prompts)
        metrics |= _pooled(f"js_{name}_share", _counts(rows, prompts), _counts(tested, prompts))
    return metrics


def relative_probability(frame: pd.DataFrame, temperature: float) -> pd.Series:
    """Processed probability of each token over the largest in its context; at temperature 0, where
    all mass lies on the argmax, that at temperature 1. Top-k and top-p leave ratios as they are,
    and 0 for what they drop."""
    ratio = frame["p0"] / frame["p1"]
    return ratio if temperature == 0 else (ratio ** (1 / temperature)).where(frame["p"] > 0, 0.0)


def _out_of_head(
    frame: pd.DataFrame, tokens: Mapping[str, int], temperature: float
) -> dict[str, Sums]:
    relaxed = frame[frame["clause"].isin(KEPT) & ~frame["strict"]]
    import pandas as pd  # takes half a second, which a dry run should not cost

    counts = _counts(
        relaxed[relative_probability(relaxed, temperature) < HEAD], pd.Series(list(tokens))
    )
    return _pooled("out_of_head_1k", 1000 * counts, pd.Series(tokens))


def _contexts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["clause"].isin(TESTED) & (frame["rank"] == 0)]


def _counts(rows: pd.DataFrame, prompts: pd.Series) -> pd.Series:
    """Rows of each prompt, 0 where it has none."""
    return rows["prompt"].value_counts().reindex(sorted(prompts.unique()), fill_value=0)


def _mean(name: str, rows: pd.DataFrame, column: str, prompts: pd.Series) -> dict[str, Sums]:
    sums = rows.groupby("prompt")[column].sum().reindex(sorted(prompts.unique()), fill_value=0.0)
    return _pooled(name, sums, _counts(rows, prompts))


def _pooled(name: str, above: pd.Series, below: pd.Series) -> dict[str, Sums]:
    """Sum over sum; `above` and `below` are indexed by prompt."""
    below = below[below > 0]
    return {name: Sums.of([*zip(above.reindex(below.index), below, strict=True)])}
