"""How near a rule comes to the limit: the most tokens a cycle for its distortion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Point = tuple[float, float]
"""Distortion (nats a token) and τ."""


def efficiency(rule: Point, lossless: Point, limit: Sequence[Point]) -> float | None:
    """A rule's gain in τ over lossless decoding, over that of the limit at the rule's distortion. `limit`: points of
    the limit's curve, which begins at `lossless`, joined by straight lines. None beyond its end, and where the limit
    gains nothing."""
    curve = sorted([lossless, *limit])
    distortion, tau = rule
    if not curve[0][0] < distortion <= curve[-1][0]:
        return None
    best = float(np.interp(distortion, [x for x, _ in curve], [y for _, y in curve]))
    return (tau - lossless[1]) / (best - lossless[1]) if best > lossless[1] else None
