"""What differs between measuring sessions, which prompts timed in one session cannot show.

From the prices that the cells of one baseline have on the same prompts, in log seconds a cycle, the means of each cell
and of each prompt are taken away. Of the rest, the variance of the means of a cell in each session beyond that of
single prompts is the component between sessions (two-way analysis of variance, by moments). A row alone has one degree
of freedom less than sessions, so one variance is estimated from all cells of a machine. What all cells of a session
share cancels in a ratio of two of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.metrics.delta import Estimate
from results.store.sample import Timed, is_rated

ENOUGH = 30
"""Degrees of freedom below which a footnote says that there are few."""


@dataclass(frozen=True, slots=True)
class Between:
    """Variance of the log price of a cycle of a cell between sessions, and its degrees of freedom."""

    variance: float
    freedom: int

    def added_to(self, speed: Estimate, sessions: int) -> Estimate:
        """A ratio of the speeds of two cells, each timed in so many sessions, with this variance of both in its error
        (Welch and Satterthwaite's degrees of freedom). `speed` is on the logarithmic scale."""
        if speed.error is None or not self.variance:
            return speed
        parts = (speed.error**2, speed.freedom), (2 * self.variance / sessions, self.freedom)
        whole = sum(variance for variance, _ in parts)
        return Estimate(speed.value, whole**0.5, whole**2 / sum(one**2 / free for one, free in parts), speed.log)

    def text(self, sessions: int) -> str:
        """A footnote on a row of so many sessions."""
        few = "" if self.freedom >= ENOUGH else f", fewer than {ENOUGH}, so that it is uncertain itself"
        return (f"the price of a cycle differs by {self.variance**0.5:.1%} between measuring sessions (standard "
                f"deviation, {self.freedom} degrees of freedom{few}), which is in the interval and the verdict, "
                f"for {sessions} session{'s' if sessions > 1 else ''}")


def between(rotations: Iterable[Sequence[Sequence[Timed]]]) -> Between | None:
    """Of the timed prompts of each cell, cells of one baseline together. Cells count that were timed on the same
    prompts in the same sessions, and the baseline with them. None where no two cells share two sessions."""
    freedom, excess, weight = 0, 0.0, 0.0
    for cells in rotations:
        alike: dict[tuple[tuple[str, str, str], ...], list[list[Timed]]] = {}
        for rows in cells:
            rated = sorted((row for row in rows if is_rated(row)), key=lambda row: (row.host, row.started, row.id))
            alike.setdefault(tuple((row.host, row.started, row.id) for row in rated), []).append(rated)
        for keys, members in alike.items():
            runs = [[row.own for row in rows] for rows in members]
            if all(row.baseline is not None for row in members[0]):
                runs.append([row.runs[1] for row in members[0]])
            prices = np.log([[run.decode_s / run.cycles for run in row] for row in runs])
            own, least, free = _excess(prices, np.array([key[1] for key in keys]))
            freedom, excess, weight = freedom + free, excess + own, weight + least
    return Between(max(0.0, excess / weight), freedom) if freedom else None


def _excess(prices: NDArray[np.float64], sessions: NDArray[np.str_]) -> tuple[float, float, int]:
    """Of prices [cells, prompts] and each prompt's session: the sum of squares between sessions beyond what single
    prompts explain, by how much a unit of variance between sessions raises it, and its degrees of freedom."""
    names, counts = np.unique(sessions, return_counts=True)
    cells, prompts = prices.shape
    if cells < 2 or len(names) < 2 or prompts <= len(names):
        return 0.0, 0.0, 0
    rest = prices - prices.mean(0) - prices.mean(1, keepdims=True) + prices.mean()
    squares = sum(count * float((rest[:, sessions == name].mean(1)**2).sum())
                  for name, count in zip(names, counts, strict=True))
    within = (float((rest**2).sum()) - squares) / ((cells - 1) * (prompts - len(names)))
    free = (cells - 1) * (len(names) - 1)
    return squares - free * within, (cells - 1) * (prompts - float((counts**2).sum()) / prompts), free
