"""Quantities of traces: what figures draw per position, and the metrics that only a trace holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from results.store.clauses import EMITTED, TESTED
from results.store.errors import StoreError
from results.store.traces import TraceFolder

HEADS = 5
"""Dropout heads of the papers' tables."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number per position of a trace.

    label    name in figures, with its unit
    columns  columns of the trace that it is computed from
    of       computes it from these columns
    rows     the positions that have it: emitted tokens, or contexts in which the first drafted sibling was tested
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
    "prob_ratio": Quantity("probability ratio p₂/p₁", ("p1", "p2"), lambda frame: frame["p2"] / frame["p1"]),
    "js": _column("JS(draft, target) (nats)", "js", "contexts"),
    "js_released": _column("JS as released (nats)", "js_released", "contexts"),
    "kl": _column("KL(target, draft) (nats)", "kl", "contexts"),
    "tv": _column("total variation", "tv", "contexts"),
}


def quantities(traces: TraceFolder, names: tuple[str, ...]) -> pd.DataFrame:
    """Columns `names`, `clause` and `by_threshold`, one row per position at which all the quantities exist.

    Raises StoreError without traces, ValueError for quantities of different rows."""
    chosen = [QUANTITIES[name] for name in names]
    kinds = {quantity.rows for quantity in chosen}
    if len(kinds) > 1:
        raise ValueError(f"{', '.join(names)}: one panel cannot show both emitted tokens and drafted contexts")
    read = {"clause", "rank", "by_threshold"}.union(*(quantity.columns for quantity in chosen))
    frame = traces.frame(sorted(read))
    frame = _contexts(frame) if kinds == {"contexts"} else frame[frame["clause"].isin(EMITTED)]
    numbers = pd.DataFrame({name: quantity.of(frame) for name, quantity in zip(names, chosen, strict=True)})
    labelled = numbers.assign(clause=frame["clause"], by_threshold=frame["by_threshold"])
    known = labelled.loc[np.isfinite(numbers.to_numpy(float)).all(axis=1)]
    return pd.DataFrame(known)


def trace_metrics(traces: TraceFolder) -> dict[str, Any]:
    """Metrics of a cell that only its trace holds; empty without a trace, and for rules that do not record them.

    majority_i, majority_p_i   of the tested contexts, the share in which i of the dropout heads agree on a token and no
                               more do, and that token's mean probability there (DropMatch, Table 2)
    js_dispersed_draft, js_dispersed_heads, js_concentrated_…   mean JS of the draft, and of the heads, to the centroid
                               where eq. 6 keeps the token (dispersed) and where eq. 7 alone does (Table 3), nats
    """
    try:
        frame = traces.frame(["clause", "rank", "majority", "majority_p", "votes", "js_centroid", "js_heads",
                              "js_heads_max", "token"])
    except StoreError:
        return {}
    metrics: dict[str, Any] = {}
    if "majority" in frame:
        contexts = _contexts(frame)
        for size in range(1, HEADS + 1):
            agreeing = contexts[contexts["majority"] == size]
            metrics[f"majority_{size}"] = len(agreeing) / len(contexts) if len(contexts) else None
            metrics[f"majority_p_{size}"] = _mean(agreeing["majority_p"])
    if "js_centroid" in frame:
        tested = frame[frame["clause"].isin(TESTED)]
        within = tested["js_centroid"] <= tested["js_heads_max"]
        majority_only = ~within & (tested["votes"] == tested["majority"])
        for name, rows in (("dispersed", tested[within]), ("concentrated", tested[majority_only])):
            metrics[f"js_{name}_draft"] = _mean(rows["js_centroid"])
            metrics[f"js_{name}_heads"] = _mean(rows["js_heads"])
            metrics[f"js_{name}_share"] = len(rows) / len(tested) if len(tested) else None
    return metrics


def _contexts(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["clause"].isin(TESTED) & (frame["rank"] == 0)]


def _mean(column: pd.Series) -> float | None:
    return float(column.mean()) if len(column) else None
