"""The split of Δτ passes its own controls: lossless decoding at another temperature, presented as a rule at T = 1, has
no relaxation. Measured cells of the embedded pair (tests/helpers/curve_controls.py)."""

from __future__ import annotations

import numpy as np
import pytest

from results.metrics.curve import Counts
from results.metrics.tau_gain import UNDEFINED, Runs, split
from tests.helpers.curve_controls import CONTROLS, CURVE, counts

DRAWN, PROMPTS, INNER = 500, 64, 300


def part(run: Counts, chosen: np.ndarray) -> Counts:
    return Counts(*(column[chosen] for column in run))


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, float, int], Counts]:
    return counts()


def control(cells: dict, temperature: float, chosen: np.ndarray) -> Runs:
    own = part(cells["lossless", temperature, 1], chosen)
    return Runs(own, own, {t: part(cells["lossless", t, 0], chosen) for t in CURVE},
                {t: part(cells["plain", t, 0], chosen) for t in CURVE})


def test_there_are_enough_prompts(cells) -> None:
    assert len(cells["plain", 1.0, 0].tokens) >= 500


@pytest.mark.slow
@pytest.mark.parametrize("temperature", CONTROLS)
def test_the_interval_of_relaxation_holds_0(cells, temperature) -> None:
    """In at least 93% of 500 draws of 64 of the prompts, at a nominal 95%."""
    rng, held, defined = np.random.default_rng(int(100 * temperature)), 0, 0
    for _ in range(DRAWN):
        chosen = rng.choice(len(cells["plain", 1.0, 0].tokens), PROMPTS, replace=False)
        found = split(control(cells, temperature, chosen), 1.0, INNER)
        if found["tau_gain_match"] != UNDEFINED:
            defined += 1
            held += found["tau_gain_relaxed_ci95"][0] <= 0 <= found["tau_gain_relaxed_ci95"][1]
    assert defined >= 0.9 * DRAWN and held >= 0.93 * defined, (held, defined)


@pytest.mark.parametrize("temperature", CONTROLS)
def test_over_all_prompts_all_of_it_is_greedier(cells, temperature) -> None:
    found = split(control(cells, temperature, np.arange(len(cells["plain", 1.0, 0].tokens))), 1.0, 2000)
    low, high = found["tau_gain_relaxed_ci95"]
    assert low <= 0 <= high and abs(found["tau_gain_relaxed"]) < 0.05

