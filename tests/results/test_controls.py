"""The judge's own controls: lossless settings presented as rules are no gain, and what is faster is
found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from results.metrics import frontier
from results.metrics.delta import SESSION_FLOOR, Estimate, between
from results.metrics.frontier import Lossless, beside_lossless
from results.metrics.verdict import Answered, Judged
from results.store.sample import Compared, Timed
from tests.helpers.synthetic_cells import compared, sample

CURVE = {0.0: (5.3, 0.322), 0.4: (5.0, 0.050), 0.7: (4.9, 0.010), 1.0: (4.5, 0.0)}
"""Temperature -> τ and distortion, about those of the embedded pair on mini_chat."""
SETTINGS = {"tree": 1.0, "chain": 0.98, "block": 0.9}
"""Lossless setting -> τ over that of the first."""
ROOT = Path(__file__).resolve().parents[2]
N, TIMED, RUNS, BETWEEN = 64, 12, 200, 0.03
"""Prompts, those timed, experiments, and the standard deviation between sessions of three per
cent."""


def cell(
    rng: np.random.Generator,
    tau: float,
    price: float,
    seconds: np.ndarray,
    base: np.ndarray,
    sessions: int,
) -> list[Compared]:
    """N prompts with their own lengths and cycles; the first of them timed in so many sessions, in
    each of which the cell is faster or slower. `base`: noise of the baseline's clock."""
    pairs, effects = [], rng.normal(0, BETWEEN if sessions > 1 else 0, sessions)
    for i in range(N):
        tokens = int(rng.integers(20, 60))
        cycles = max(1, round(tokens / (tau * rng.lognormal(0, 0.1))))
        committed = [tokens // cycles + (j < tokens % cycles) for j in range(cycles)]
        own = sample(f"p{i:02}", [0] * tokens, committed=committed, nll=float(tokens))
        plain = sample(own.id, [0] * tokens, committed=[1] * tokens, nll=float(tokens))
        part = i * sessions // TIMED if i < TIMED else 0
        spent = cycles * price * seconds[i] * rng.lognormal(effects[part], 0.02)
        pair = compared(
            own,
            plain,
            decode_s=spent,
            base_decode_s=tokens * seconds[i] * base[i],
            prefill_s=0.001,
            started=str(part),
        )
        pairs.append(pair if i < TIMED else replace(pair, timed=None))
    return pairs


def experiment(rng: np.random.Generator, sessions: int) -> tuple[list[Lossless], list[Compared]]:
    """Lossless settings, and another run of their best one at T = 0.7."""
    seconds, base = 0.001 * rng.lognormal(0, 0.1, N), rng.lognormal(0, 0.02, N)
    lines = [
        Lossless(
            name,
            t,
            cell(rng, tau * share, 2.5, seconds, base, sessions),
            Estimate(nats, 0.03 * nats, N - 1.0, log=False),
        )
        for t, (tau, nats) in CURVE.items()
        for name, share in SETTINGS.items()
    ]
    return lines, cell(rng, CURVE[0.7][0], 2.5, seconds, base, sessions)


def timed(pairs: list[Compared]) -> list[Timed]:
    return [pair.timed for pair in pairs if pair.timed is not None]


def clocked(row: Timed, own: float, base: float) -> Timed:
    """With so many times the decode seconds of its own and of the baseline."""
    runs = zip(row.runs, (own, base), strict=True)
    mine, plain = (replace(run, decode_s=run.decode_s * factor) for run, factor in runs)
    return replace(row, own=mine, baseline=plain)


def judged(monkeypatch: pytest.MonkeyPatch, speed: float, runs: int, sessions: int) -> list[Judged]:
    """Of a setting of the frontier presented as a rule, whose clock is so much faster."""
    monkeypatch.setattr(frontier, "FRONTIER_RESAMPLES", 120)
    results, rng = [], np.random.default_rng(0)
    for _ in range(runs):
        line, pairs = experiment(rng, sessions)
        faster = [
            replace(pair, timed=pair.timed and clocked(pair.timed, 1 / speed, 1)) for pair in pairs
        ]
        own = Answered(faster, distortion=Estimate(0.010, 0.0003, N - 1.0, log=False))
        component = between([timed(pairs), *(timed(setting.pairs) for setting in line)])
        assert component.method_freedom in ((0,) if sessions == 1 else (0, 24))
        results.append(beside_lossless(own, 1.0, line, component)["judged"])
    return results


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [1, 3])
def test_a_lossless_setting_presented_as_a_rule_is_a_gain_no_oftener_than_stated(
    monkeypatch: pytest.MonkeyPatch, sessions: int
) -> None:
    results = judged(monkeypatch, 1.0, RUNS, sessions)
    gains = [each.verdict.kind == "gain" for each in results]
    assert np.mean(gains) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / RUNS)
    held = [each.speed.interval()[0] <= 1 <= each.speed.interval()[1] for each in results]
    assert np.mean(held) >= 0.935 - 2 * np.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.slow
def test_a_clock_times_0_85_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At this noise, 12 timed prompts of 64 in one session and the least that sessions are taken to
    differ by; a clock times 0.9 is found one time in two."""
    found = [each.verdict.kind for each in judged(monkeypatch, 1 / 0.85, 40, 1)]
    assert found.count("gain") > 0.9 * 40 and "no gain above 5%" not in found


PLAIN = 0.06
"""Standard deviation between sessions of plain decoding."""


def test_the_components_between_sessions_are_found() -> None:
    """Their means over experiments, and their degrees of freedom; prompts and the drift that all
    arms share are in neither."""
    rng, results = np.random.default_rng(0), []
    for _ in range(60):
        lines, pairs = experiment(rng, 3)
        moved = rng.normal(0, PLAIN, 3)
        factors = {str(i): (1.2**i, 1.2**i * np.exp(moved[i])) for i in range(3)}
        rows = [
            [clocked(row, *factors[row.started]) for row in timed(held)]
            for held in [pairs, *(setting.pairs for setting in lines)]
        ]
        for held in rows:  # one baseline beside all
            for place, row in enumerate(held):
                held[place] = replace(row, baseline=rows[0][place].baseline)
        results.append(between(rows))
    assert {each.method_freedom for each in results} <= {0, 24}, "0 where the floor is above"
    assert np.mean([each.method for each in results]) == pytest.approx(BETWEEN**2, rel=0.2)
    measured = [each.plain for each in results]
    assert np.mean(measured) == pytest.approx(PLAIN**2 + BETWEEN**2 / 13, rel=0.35)
    assert {each.plain_freedom for each in results} <= {0, 2}


def test_one_session_or_few_that_agree_leave_the_floor() -> None:
    lines, pairs = experiment(np.random.default_rng(0), 1)
    results = between([timed(pairs), *(timed(setting.pairs) for setting in lines)])
    assert (results.method, results.plain) == (SESSION_FLOOR**2, SESSION_FLOOR**2)
    assert between([]) == results
    widened = results.widened((1.9, 2.1), sessions=1)
    half = np.hypot(np.log(2.1 / 1.9) / 2, norm.ppf(0.975) * SESSION_FLOOR * np.sqrt(2))
    assert widened == pytest.approx(tuple(np.sqrt(1.9 * 2.1) * np.exp([-half, half])))


def test_no_control_of_the_committed_table_is_a_gain() -> None:
    """Temperatures, truncations and random acceptance, judged at equal distortion."""
    rows = pd.read_csv(ROOT / "results/measured/embedded_cpu/controls.csv", low_memory=False)
    controls = rows["Rule"].str.startswith(("control: ", "limit: random", "random, ", "lossless, "))
    judged = rows[(rows["value_name"] == "equal_d_speed") & controls].dropna(subset=["verdict"])
    assert len(judged) > 9 and "no gain above 5%" in set(judged["verdict"])
    assert judged[judged["verdict"] == "gain"]["Rule"].tolist() == []
