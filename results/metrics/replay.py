"""First-order replay: which traced draft tokens a rule would keep at another threshold, without decoding again.

The trajectory is held fixed: a changed decision would change the next draft and its context, which is not followed. So
the replay is exact at the traced threshold and an approximation far from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from results.metrics import intervals
from results.store.traces import TESTED, Threshold

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("prompt", "turn", "cycle", "node", "parent", "depth", "clause", "accept", "score", "inside", "outside")
_COMPARE = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
_NODES = 1 << 20


def replay(trace: pd.DataFrame, threshold: Threshold, values: Sequence[float]) -> pd.DataFrame:
    """One row per threshold in `values`, compared in float32 as on the device:

    acceptance   share of the traced run's tested tokens that the rule would keep, with a 95% interval (bootstrap over
                 prompts): acceptance_low, acceptance_high
    accept_len   draft tokens kept per traced cycle, each traced tree walked again
    """
    drafted = trace[trace["clause"] != "drawn"]
    cycles = trace.groupby(["prompt", "turn", "cycle"], observed=True, sort=False).ngroups
    import pandas as pd  # takes half a second, which a dry run should not cost

    return pd.DataFrame([{"threshold": value, **_at(drafted, kept_at(drafted, threshold, value), cycles)}
                         for value in values])


def kept_at(drafted: pd.DataFrame, threshold: Threshold, value: float) -> np.ndarray:
    """bool [rows]: which tokens the rule keeps, if it tests them, with its threshold at `value`."""
    over = _COMPARE[threshold.relation](drafted["score"].to_numpy(np.float32), np.float32(value))
    return np.where(over, drafted["inside"].to_numpy(bool), drafted["outside"].to_numpy(bool))


def default_values(trace: pd.DataFrame, threshold: Threshold, count: int = 21) -> list[float]:
    """Quantiles of the score of the tested tokens, and the traced threshold, ascending."""
    scores = trace.loc[trace["clause"].isin(TESTED), "score"].to_numpy(float)
    scores = scores[np.isfinite(scores)]
    spread = np.quantile(scores, np.linspace(0, 1, count - 1)) if len(scores) else []
    return sorted({*(float(np.float32(x)) for x in spread), threshold.value})


def _at(drafted: pd.DataFrame, keep: np.ndarray, cycles: int) -> dict[str, float]:
    tested = drafted["clause"].isin(TESTED).to_numpy()
    prompts = drafted["prompt"].to_numpy()[tested]
    names, place = np.unique(prompts, return_inverse=True)
    kept, all_ = (np.bincount(place, weights, len(names)) for weights in (keep[tested].astype(float), None))
    low, high = intervals.ratio_interval(kept, all_) or (np.nan, np.nan)
    share = float(kept.sum() / all_.sum()) if all_.sum() else np.nan
    return {"acceptance": share, "acceptance_low": low, "acceptance_high": high,
            "accept_len": float(walked(drafted, keep).sum() / cycles) if cycles else np.nan}


def walked(drafted: pd.DataFrame, keep: np.ndarray) -> np.ndarray:
    """bool [rows]: the tokens on the path that follows the first kept child from each root."""
    cycle = drafted.groupby(["prompt", "turn", "cycle"], observed=True, sort=False).ngroup().to_numpy(np.int64)
    node, parent, depth = (drafted[name].to_numpy(np.int64) for name in ("node", "parent", "depth"))
    own, above = cycle * _NODES + node, cycle * _NODES + parent
    chosen = np.zeros(len(drafted), bool)
    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((node[rows], above[rows]))]
    chosen[rows[np.r_[True, np.diff(above[rows]) != 0][:len(rows)]]] = True  # the first kept child of each parent
    path = np.zeros(len(drafted), bool)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = chosen & (depth == level)
        path |= here if level == 1 else here & np.isin(above, own[path])
    return path
