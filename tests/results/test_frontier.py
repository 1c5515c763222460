"""Rows beside the fastest lossless decoding that distorts no more, and the words of a verdict:
one-sided tests on the ratio of speeds, corrected for one number of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from results.metrics.delta import Between, Estimate
from results.metrics.frontier import Lossless, beside_lossless
from results.metrics.verdict import ALPHA, FAMILY, LEVEL, Answered, Judged
from tests.helpers.synthetic_cells import compared, sample
from tests.helpers.tables import beside

CURVE = {0.0: (6.0, 0.4), 0.5: (5.0, 0.1), 1.0: (4.0, 0.0)}
"""Temperature -> τ and distortion of lossless settings."""
N, TIMED, SECONDS = 24, 12, 0.001
FAR = "undecided, since no lossless setting distorts as much"


def nats(value: float) -> Estimate:
    return Estimate(value, 0.0, N - 1.0, log=False)


def row(
    tau: float,
    cycle: float = 2.0,
    clock: bool = True,
    length: int = 60,
    distortion: float = 0.0,
    noise: float = 0.0,
    plain: float = 1.0,
    prefill: float = 0.0,
) -> Answered:
    """N prompts of `length` tokens, each cycle of `cycle` milliseconds, a token of plain decoding
    of `plain`, a prompt of `prefill`. `noise`: relative spread of a cycle's time over prompts."""
    pairs, spread = [], np.random.default_rng(0).normal(1, noise, N)
    for i in range(N):
        cycles = round(length / tau)
        own = sample(f"p{i}", [0] * length, committed=[length // cycles] * cycles, nll=0.0)
        base = sample(f"p{i}", [0] * 60, committed=[1] * 60, nll=0.0)
        seconds = SECONDS * cycle * cycles * spread[i]
        pair = compared(
            own,
            base,
            decode_s=seconds,
            base_decode_s=SECONDS * plain * 60,
            prefill_s=SECONDS * prefill,
        )
        pairs.append(pair if clock and i < TIMED else replace(pair, timed=None))
    return Answered(pairs, distortion=nats(distortion))


def lossless(
    temperature: float = 1.0, greedy: Mapping[str, float] | None = None, **fields: float
) -> list[Lossless]:
    """A fast setting; beside it a slow one, on the row's own draft. At temperature 0 only greedy
    decoding compares; `greedy`: what its rows are besides."""
    made = []
    for t, (tau, nat) in CURVE.items():
        if temperature or not t:
            here = {"cycle": 2.0, **fields, **({} if t else greedy or {})}
            slow = here | {"cycle": 1.5 * here["cycle"]}
            made.append(Lossless("fast", t, row(tau, **here).pairs, nats(nat)))
            made.append(Lossless("slow", t, row(tau, **slow).pairs, nats(nat), same_draft=True))
    return made


ROWS = beside(__file__, "frontier.yaml")


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case["why"])
def test_a_row_beside_the_fastest_lossless_setting(case: dict[str, Any]) -> None:
    temperature = case.get("temperature", 1.0)
    lines = lossless(temperature, case.get("greedy"), **case.get("lines", {}))
    if "more" in case:
        name, at, tau, distortion = case["more"]
        lines.append(Lossless(name, at, row(tau).pairs, nats(distortion)))
    beside = beside_lossless(row(**case["own"]), temperature, lines)
    found = {name: beside[f"equal_d_{name}"] for name in case["equal_d"]}
    assert found == pytest.approx(case["equal_d"]) and beside["judged"].beyond == 0


@pytest.mark.parametrize(
    ("tau", "distortion", "temperature", "said"),
    [
        (6.0, 0.1, 1.0, "gain"),
        (4.9, 0.1, 1.0, "no gain above 5%"),
        (7.5, 0.5, 1.0, FAR),
        (5.0, 0.5, 1.0, "no gain above 5%"),
        (12.0, 0.39, 0.0, "gain"),
        (12.0, 0.7, 0.0, FAR),
    ],
)
def test_the_verdict_in_words(tau: float, distortion: float, temperature: float, said: str) -> None:
    own = row(tau, distortion=distortion, noise=0.02)
    beside = beside_lossless(own, temperature, lossless(temperature))
    assert beside["judged"].verdict.text == said


def test_without_a_clock_or_a_distortion_there_is_no_verdict() -> None:
    clockless = [replace(setting, pairs=row(5.0, clock=False).pairs) for setting in lossless()]
    for own, lines in (
        (row(5.0, clock=False), lossless()),
        (replace(row(5.0), distortion=None), lossless()),
        (row(5.0), clockless),
    ):
        assert beside_lossless(own, 1.0, lines) == {}


def test_each_setting_of_a_row_has_its_own_price() -> None:
    cheap, dear = row(5.0, cycle=1.0), row(5.0, cycle=3.0)
    half = {pair.id for i, pair in enumerate(cheap.pairs) if i % 2}
    mixed = Answered(
        [
            setting if setting.id in half else other
            for setting, other in zip(cheap.pairs, dear.pairs, strict=True)
        ],
        {pair.id: "cheap" if pair.id in half else "dear" for pair in cheap.pairs},
        nats(0.1),
    )
    assert beside_lossless(mixed, 1.0, lossless())["equal_d_speed"] == pytest.approx(1), (
        "a cycle of two tokens' time on average"
    )


def judged(ratio: float, error: float = 0.01, beyond: float = 0.0) -> Judged:
    return Judged(speed=Estimate(ratio, error, 1e6), beyond=beyond, n=64)


Z = NormalDist().inv_cdf(1 - LEVEL)
ABOVE, BELOW = math.exp(0.01 * Z + 1e-4), math.exp(0.01 * Z - 1e-4)
"""Ratios that one of both tests just shows and just does not show to be above 1."""


@pytest.mark.parametrize(
    ("ratio", "beyond", "kind"),
    [
        (ABOVE, 0.0, "gain"),
        (BELOW, 0.0, "undecided"),
        (1.05 / BELOW, 0.0, "undecided"),
        (1.05 / ABOVE, 0.0, "no gain above 5%"),
        (2.0, 0.94, "gain"),
        (2.0, 0.96, "undecided"),
        (0.9, 0.96, "no gain above 5%"),
    ],
)
def test_what_each_evidence_gives(ratio: float, beyond: float, kind: str) -> None:
    assert judged(ratio, beyond=beyond).verdict.kind == kind


def test_the_level_is_bonferronis() -> None:
    """As statsmodels corrects it for so many."""
    *_, level = multipletests([1.0] * FAMILY, ALPHA, method="bonferroni")
    assert pytest.approx(level) == LEVEL


def test_how_many_prompts_would_decide() -> None:
    """The error shrinks with the root of their number: of a gain and of its opposite the nearer one
    decides."""
    near, room = judged(math.exp(0.01), 0.05), math.log(1.05) - 0.01
    assert near.verdict.needed == pytest.approx(64 * (Z * 0.05 / room) ** 2, rel=0.01)
    # what differs between sessions does not shrink
    apart = replace(near, between=Between(method=5e-5), sessions=1)
    left = (room / Z) ** 2 - 1e-4
    assert apart.verdict.needed == pytest.approx(64 * (0.05**2 - 1e-4) / left, rel=0.01)
    far = judged(1.5, 0.4)
    assert far.verdict.needed == pytest.approx(64 * (Z * 0.4 / math.log(1.5)) ** 2, rel=0.01)
    assert judged(1.0247, 5.0).verdict.text == "undecided, n > 100,000"
