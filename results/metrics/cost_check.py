"""Answer speedups under a cost profile, and how far its predictions are from what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from results.metrics.cost import Check, Profile
from results.metrics.intervals import Interval, ratio_interval
from results.store.sample import Compared


class Seconds(NamedTuple):
    """Seconds of the answers to some prompts, prefill included, each [prompts]: a cell's and its baseline's."""

    own: NDArray[np.float64]
    base: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[Compared]) -> Self:
        """Of the prompts that have a clock."""
        runs = [pair.timed.runs for pair in pairs if pair.timed is not None]
        own, base = (np.array([run[arm].prefill_s + run[arm].decode_s for run in runs]) for arm in (0, 1))
        return cls(own, base)


def speedup(seconds: Seconds) -> tuple[float, Interval | None]:
    """The answer speedup, sum over sum, and its 95% interval over prompts."""
    return float(seconds.base.sum() / seconds.own.sum()), ratio_interval(seconds.base, seconds.own)


def check_of(pairs: Sequence[tuple[float | None, float | None]]) -> Check | None:
    """Predicted ÷ measured of the cells that have both; None without any."""
    ratios = [predicted / measured for predicted, measured in pairs if predicted is not None and measured]
    if not ratios:
        return None
    low, median, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return Check(cells=len(ratios), median=float(median), low=float(low), high=float(high))


def stated(profile: Profile) -> str:
    """What a caption says of numbers under a profile."""
    text = (f"modelled for {profile.title}, from the cycles recorded here: τ is this model's, not that one's"
            + (" (computed from a data sheet, nothing was measured there)" if profile.obtained == "roofline" else ""))
    if profile.beside:
        text += f"; intervals reach over this profile and {', '.join(profile.beside)}, which have other sources"
    if profile.check is None:
        return text
    check = profile.check
    text += f"; predicted ÷ measured there: median {check.median:.2f}, 90% {check.low:.2f} to {check.high:.2f}"
    return text + ("; the profile misses by more than 10%" if check.misses else "")
