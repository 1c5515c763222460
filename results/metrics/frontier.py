"""Beside the frontier: at each temperature the lossless setting that was fastest on the other half of the prompts, or
plain decoding where that is faster still.

An answer's cost is counted in tokens of plain decoding: its cycles at the price of a cycle, and its prefill. Both
prices are ratios to the baseline timed beside them, so that rows of different sessions compare. Plain decoding at the
temperature asked for is 1 for all rows, so that shorter text at another temperature counts as what it is: an answer
that is there sooner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.answer_speed import equal_length_speedup, modelled_value
from results.metrics.curve import OFF_CURVE, Counts, Floats, curve_of, interval, monotone, pooled, resamples
from results.metrics.intervals import SEED
from results.metrics.summary import Summary
from results.metrics.verdict import Answered
from results.store.timed import Timed, is_rated

FRONTIER_RESAMPLES = 4000


@dataclass(frozen=True)
class _Priced:
    """A row over the common prompts.

    own, plain   its counts and those of plain decoding, over n prompts.
    kinds        for each setting: which of the n prompts, and which of the m timed ones, it decoded.
    clock        [m, 6] of the timed prompts: own decode seconds, cycles and prefill seconds, and the baseline's.
    """

    own: Counts
    plain: Counts
    kinds: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
    clock: Floats

    def cost(self, draws: Floats, timed: Floats) -> Floats:
        """Tokens of plain decoding that an answer costs, in resamples of the prompts [resamples, n] and of the timed
        ones [resamples, m]."""
        token = (timed @ self.clock[:, 3]) / (timed @ self.clock[:, 4])
        total = (timed @ self.clock[:, 2]) / timed.sum(1) / token
        for of_prompts, of_timed in self.kinds:
            cycles = draws @ (self.own.cycles * of_prompts) / draws.sum(1)
            total = total + cycles * self._cycle(timed, of_timed) / token
        return np.asarray(total)

    def plain_cost(self, draws: Floats, timed: Floats) -> Floats:
        """The same of plain decoding."""
        token = (timed @ self.clock[:, 3]) / (timed @ self.clock[:, 4])
        return np.asarray(draws @ self.plain.cycles / draws.sum(1) + (timed @ self.clock[:, 5]) / timed.sum(1) / token)

    def _cycle(self, timed: Floats, of_timed: NDArray[np.bool_]) -> Floats:
        """Seconds of a cycle of one setting; of all its timed prompts where none was drawn."""
        seconds, cycles = self.clock[:, 0] * of_timed, self.clock[:, 1] * of_timed
        drawn = timed @ cycles
        return np.where(drawn > 0, (timed @ seconds) / np.where(drawn > 0, drawn, 1), seconds.sum() / cycles.sum())


def beside_frontier(own: Answered, frontier: Mapping[float, Answered], asked: Answered) -> dict[str, Any]:
    """The metrics `frontier_…` of a row, each with `_ci95` by a bootstrap over prompts, timed ones included, that
    redoes both matches.

        frontier_speed         cost of plain decoding at the temperature asked for ÷ own
        frontier_answer        cost of the frontier at the temperature of equal NLL ÷ own: above 1 the row is faster
                               than any lossless setting, and than plain decoding, with text as likely
        frontier_tau           τ minus that of the frontier's lossless setting there
        frontier_temperature   that temperature
        frontier_same_speed    the temperature at which the frontier costs as much as the row
        frontier_nll           NLL minus that of the frontier at equal cost: above 0 the row's text is less likely

    `frontier`: temperature -> the row of the lossless settings that are fastest there; `asked`: that at the temperature
    asked for. Where plain decoding costs less than that row, its cost is the frontier's, and `frontier_tau` still
    compares with the row. A match that more than 5% of the resamples do not find is left out. Empty without a clock."""
    rows: dict[Any, Answered] = {**frontier, "own": own, "asked": asked}
    ids = sorted(set.intersection(*({pair.id for pair in row.pairs} for row in rows.values())))
    clocks = {name: {pair.id: pair.timed for pair in row.pairs if pair.timed is not None and is_rated(pair.timed)}
              for name, row in rows.items()}
    timed = sorted(set.intersection(*(set(clock) for clock in clocks.values())) & set(ids))
    if len(ids) < 2 or len(timed) < 2:
        return {}
    priced = {name: _priced(row, ids, [clocks[name][one] for one in timed]) for name, row in rows.items()}
    if any(not of_timed.any() for one in priced.values() for of_prompts, of_timed in one.kinds if of_prompts.any()):
        return {}
    plain = {t: _plain_is_faster(row) for t, row in sorted(frontier.items())}
    rng = np.random.default_rng(SEED + 1)
    found: dict[str, list[Floats]] = {}
    left: dict[str, list[Floats]] = {}
    for draws in resamples(len(ids), FRONTIER_RESAMPLES):
        of_timed = np.ones((1, len(timed))) if len(draws) == 1 else rng.multinomial(
            len(timed), np.full(len(timed), 1 / len(timed)), size=len(draws)).astype(float)
        values, off = _matched(priced, plain, draws, of_timed)
        for known, given in ((found, values), (left, off)):
            for name, one in given.items():
                known.setdefault(name, []).append(one)
    return _stated(found, left, min(len(ids), len(timed)))


def _plain_is_faster(row: Answered) -> bool:
    speed = modelled_value(row.pairs, equal_length_speedup, row.settings)
    return speed is not None and speed < 1


def _priced(row: Answered, ids: Sequence[str], clocks: Sequence[Timed]) -> _Priced:
    pairs = {pair.id: pair for pair in row.pairs}
    own = Counts.of({name: pairs[name].sample for name in ids}, ids)
    plain = Counts.of({name: pairs[name].baseline for name in ids}, ids)
    settings = sorted({row.settings.get(name, "") for name in ids})
    kinds = [(np.array([row.settings.get(name, "") == one for name in ids]),
              np.array([row.settings.get(clock.id, "") == one for clock in clocks])) for one in settings]
    clock = np.array([[float(value) for run in one.runs for value in (run.decode_s, run.cycles, run.prefill_s)]
                      for one in clocks], dtype=np.float64)
    return _Priced(own, plain, kinds, clock)


def _matched(priced: Mapping[Any, _Priced], plain: Mapping[float, bool], draws: Floats,
             timed: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """The metrics in these resamples; and by metric, where its match left the curve. `plain`: temperature -> whether
    plain decoding is the frontier there."""
    own, runs = priced["own"], {t: priced[t] for t in plain}
    curve = curve_of({t: run.own for t, run in runs.items()}, {t: run.plain for t, run in runs.items()}, draws)
    cost, here = own.cost(draws, timed), pooled(own.own, draws)
    of_curve = np.stack([(run.plain_cost if plain[t] else run.cost)(draws, timed) for t, run in runs.items()], 1)
    likely, off_nll = curve.matched(curve.nll, here.nll)
    level = monotone(of_curve, np.ones_like(of_curve))
    fast, off_cost = curve.matched(level, cost)
    values = {"frontier_speed": priced["asked"].plain_cost(draws, timed) / cost,
              "frontier_answer": curve.at(of_curve, likely) / cost,
              "frontier_tau": here.tau - curve.at(curve.tau, likely), "frontier_temperature": likely,
              "frontier_same_speed": fast, "frontier_nll": here.nll - curve.at(curve.nll, fast)}
    off = {**dict.fromkeys(("frontier_answer", "frontier_tau", "frontier_temperature"), off_nll.astype(float)),
           **dict.fromkeys(("frontier_same_speed", "frontier_nll"), off_cost.astype(float))}
    return values, off


def _stated(found: Mapping[str, list[Floats]], left: Mapping[str, list[Floats]], n: int) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    for name, parts in found.items():
        values = np.concatenate(parts)
        if name in left and np.concatenate(left[name])[1:].mean() > OFF_CURVE:
            continue
        stated |= {name: float(values[0]), f"{name}_ci95": interval(values, n)}
    return stated


def standing(summary: Summary) -> str | None:
    """Where the row lies: above, on or below the frontier; None where its NLL is not on it."""
    ends = summary.frontier_answer_ci95
    if summary.frontier_answer is None or ends is None:
        return None
    return "above" if ends[0] > 1 else "below" if ends[1] < 1 else "on"


def findings(cells: Sequence[tuple[str, Summary]]) -> list[str]:
    """A sentence on each row that was compared with the frontier."""
    return [f"{name} {_placed(summary)}{_same_speed(summary)}." for name, summary in cells
            if summary.frontier_speed is not None]


def _placed(summary: Summary) -> str:
    where = standing(summary)
    if where is None:
        return "is not compared at equal likelihood: lossless decoding has its NLL at no temperature of the curve"
    low, high = summary.frontier_answer_ci95 or (0.0, 0.0)
    return (f"lies {where} the frontier: answers {summary.frontier_answer:.2f}× [{low:.2f}, {high:.2f}] as fast as "
            f"those of lossless decoding as likely (T = {summary.frontier_temperature:.2f})")


def _same_speed(summary: Summary) -> str:
    if summary.frontier_same_speed is None or summary.frontier_nll is None:
        return "; lossless decoding is as fast at no temperature of the curve"
    nats = summary.frontier_nll
    return (f"; as fast as lossless decoding at T = {summary.frontier_same_speed:.2f}, and {abs(nats):.2f} nats "
            f"{'worse' if nats > 0 else 'better'}")
