"""Scores of a method beside those of plain decoding, prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from results.metrics import intervals
from results.store.sample import Compared

Pairs = dict[str, tuple[float, float]]
"""Item -> its score with plain decoding and with the method, both in [0, 1]."""


def score_pairs(pairs: Sequence[Compared]) -> Pairs:
    """Scores of plain decoding and of the method, of the items that have both: means over the samples of each item. The
    autoregressive cell, which is its own baseline, has none."""
    by_item: dict[str, list[tuple[float, float]]] = {}
    for pair in pairs:
        plain, own = pair.baseline.score, pair.sample.score
        if pair.baseline is not pair.sample and plain is not None and own is not None:
            by_item.setdefault(pair.sample.item, []).append((plain, own))
    return {item: (float(plain), float(own)) for item, scores in by_item.items() for plain, own in [np.mean(scores, 0)]}


def score_change(scores: Pairs) -> dict[str, Any]:
    """Accuracy minus the baseline's over the items that have both; None without any."""
    if not scores:
        return {"accuracy_change": None, "accuracy_change_ci95": None}
    base, own = np.array([scores[item] for item in sorted(scores)]).T
    return {
        "accuracy_change": float(own.mean() - base.mean()),
        "accuracy_change_ci95": intervals.difference_interval(base, own),
    }
