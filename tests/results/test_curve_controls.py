"""The split of Δτ passes its own controls: lossless decoding at another temperature, presented as a
rule at T = 1, has no relaxation.

tests/golden/curve_controls.csv holds what the split of Δτ sums, for 512 prompts of mini_gsm on the
embedded pair: lossless EAGLE-3 over the curve's temperatures (repeat 0), and at four others with
other random numbers (repeat 1), the controls:

    M='pair=tiny drafter=eagle3 drafter.total=16 drafter.depth=6 draft.length=7 rule=lossless
    task=mini_gsm n=512
       decoding.max_new_tokens=32 timed=0'
    python -m bench -m $M decoding.temperature=0,0.2,0.4,0.55,0.7,0.85,1
    python -m bench -m $M decoding.temperature=0.3,0.5,0.62,0.92 repeat=1
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from results.metrics.tau_gain import UNDEFINED, Counts, Runs, split

DRAWN, PROMPTS, INNER = 500, 64, 300
FILE = Path(__file__).parents[1] / "golden" / "curve_controls.csv"
CURVE, CONTROLS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0), (0.3, 0.5, 0.62, 0.92)
Key = tuple[str, float, int]
"""plain or lossless, temperature, repeat"""


def counts() -> dict[Key, Counts]:
    """The counts of each cell; a plain one took no cycle, a lossless one of the curve lends no
    text."""
    with FILE.open() as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, np.array(rows, float).T, strict=True))
    unknown = np.full(len(rows), np.nan)
    keys = dict.fromkeys(tuple(name.split()[:3]) for name in header)
    return {
        (kind, float(t), int(repeat)): Counts(
            *(columns.get(f"{kind} {t} {repeat} {field}", unknown) for field in Counts._fields)
        )
        for kind, t, repeat in keys
    }


def part(run: Counts, chosen: np.ndarray) -> Counts:
    return Counts(*(column[chosen] for column in run))


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, float, int], Counts]:
    return counts()


def control(cells: dict, temperature: float, chosen: np.ndarray) -> Runs:
    own = part(cells["lossless", temperature, 1], chosen)
    return Runs(
        own,
        own,
        {t: part(cells["lossless", t, 0], chosen) for t in CURVE},
        {t: part(cells["plain", t, 0], chosen) for t in CURVE},
    )


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
    found = split(
        control(cells, temperature, np.arange(len(cells["plain", 1.0, 0].tokens))), 1.0, 2000
    )
    low, high = found["tau_gain_relaxed_ci95"]
    assert low <= 0 <= high and abs(found["tau_gain_relaxed"]) < 0.05
