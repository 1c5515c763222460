"""Where a rule's τ over the lossless rule comes from: relaxation, q_mode, or greedier decoding than asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from results import stats

Samples = Sequence[Mapping[str, Any]]
PARTS = ("relaxed", "q", "greedier")
"""The parts of `tau_gain`, which they add up to."""


def gains(runs: Mapping[str, Samples]) -> dict[str, Any]:
    """Differences of τ between samples of one point, each with `_ci95`, a paired bootstrap over the prompts that took a
    cycle in every run and failed in none.

    `runs`: "own" and "lossless"; for the parts also "exact" (own with q_mode exact; the very same where it has none),
    "greedy" and "lossless_greedy" (exact and lossless at temperature 0, where nothing can be won by being greedier).

        tau_gain           own − lossless
        tau_gain_q         own − exact
        tau_gain_relaxed   greedy − lossless_greedy
        tau_gain_greedier  the rest: (exact − lossless) − (greedy − lossless_greedy)
    """
    counted = {name: {s["id"]: (sum(s["committed"]), len(s["committed"])) for s in samples if s.get("committed")}
               for name, samples in runs.items()}
    ids = sorted(set.intersection(*(set(found) for found in counted.values())))
    if not ids:
        return {}
    arrays = {name: np.array([found[i] for i in ids], float).T for name, found in counted.items()}
    contrasts = {"tau_gain": {"own": 1, "lossless": -1}}
    if {"exact", "greedy", "lossless_greedy"} <= set(runs):
        contrasts |= {
            "tau_gain_q": {"own": 1, "exact": -1},
            "tau_gain_relaxed": {"greedy": 1, "lossless_greedy": -1},
            "tau_gain_greedier": {"exact": 1, "lossless": -1, "greedy": -1, "lossless_greedy": 1},
        }
    found: dict[str, Any] = {}
    for name, weights in contrasts.items():
        tokens, cycles = ([arrays[run][row] for run in weights] for row in (0, 1))
        signs = list(weights.values())
        found[name] = float(sum(w * t.sum() / c.sum() for w, t, c in zip(signs, tokens, cycles, strict=True)))
        interval = stats.contrast_interval(signs, tokens, cycles)
        found[f"{name}_ci95"] = None if interval is None else list(interval)
    return found


def finding(label: str, summary: Mapping[str, Any]) -> str | None:
    """One sentence on a measured point with all parts, None without them."""
    gain, interval = summary.get("tau_gain"), summary.get("tau_gain_ci95")
    if interval is None or summary.get("tau_gain_relaxed") is None:
        return None
    parts = {name: summary[f"tau_gain_{part}"] for name, part in
             zip(("relaxation", "q_mode: draft", "being greedier"), PARTS, strict=True)}
    split = ", ".join(f"{_signed(value)} {name}" for name, value in parts.items())
    if interval[0] <= 0 <= interval[1]:
        verdict = f"no difference that {summary['n']} prompts can show"
    elif gain < 0:
        verdict = "a loss"
    else:
        most = max(parts, key=parts.__getitem__)
        verdict = f"a gain, most of it {most}"
    return (f"{label}: {_signed(gain)} [{_signed(interval[0])}, {_signed(interval[1])}] in τ, {verdict} ({split}). "
            f"NLL {_three(summary['nll'])}, lossless {_three(summary['lossless_nll'])}, lossless at T = 0 "
            f"{_three(summary['lossless_greedy_nll'])}{_scores(summary)}.")


def _scores(summary: Mapping[str, Any]) -> str:
    own, lossless = summary.get("accuracy"), summary.get("lossless_accuracy")
    return "" if own is None or lossless is None else f"; accuracy {own:.1%}, lossless {lossless:.1%}"


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
