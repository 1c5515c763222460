"""How far apart two colours are for eyes with and without a deficit of colour vision.

Deficits are simulated by the matrices of colour_vision.yaml. The distance is Euclidean in CIELAB
under D65 (ΔE of 1976)."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from tests.helpers.tables import beside

EYES = beside(__file__, "colour_vision.yaml")
_TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(colour: str, eyes: str = "normal") -> NDArray[np.float64]:
    """L*, a*, b* of a colour as these eyes see it."""
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    x, y, z = _curve(_TO_XYZ @ np.clip(np.array(EYES[eyes]) @ linear, 0, 1) / _WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def _curve(ratio):
    return np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)


def distance(one: str, other: str, eyes: str = "normal") -> float:
    return float(np.linalg.norm(lab(one, eyes) - lab(other, eyes)))
