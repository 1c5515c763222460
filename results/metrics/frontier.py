"""Beside the frontier: the fastest lossless setting at each temperature, or plain decoding where
that is faster still.

Costs are counted in tokens of plain decoding: the cycles at the price of a cycle, and the prefill.
Both prices are ratios to the baseline timed beside them, so that rows of different sessions
compare. A lossless answer counts as long as plain decoding's at its temperature, whose distribution
it has. The bootstrap over prompts, timed ones included, redoes the choice of the fastest setting
and every match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.delta import Between, Estimate, estimate, ratio
from results.metrics.distortion import nats, spectrum, to_temperature
from results.metrics.intervals import SEED
from results.metrics.tau_gain import (
    Counts,
    Curve,
    Floats,
    interval,
    monotone,
    resampled,
)
from results.metrics.verdict import Answered, Judged
from results.store.sample import Compared, is_rated

FRONTIER_RESAMPLES = 4000


@dataclass(frozen=True)
class Point:
    """Lossless decoding at one temperature.

    settings    setting -> its prompts beside plain decoding.
    distortion  nats a token from the target at the temperature asked for; None where it is not
                known.
    """

    settings: Mapping[str, Sequence[Compared]]
    distortion: Estimate | None = None


def distance_of(pairs: Sequence[Compared], temperature: float | None = None) -> Estimate | None:
    """Distortion, nats a token, with its error over prompts: from the cell's own target or, with a
    `temperature`, from the untruncated target there. None where fewer than two prompts have it, or
    it is infinite."""
    rows = [
        row
        for pair in pairs
        if (row := nats(pair) if temperature is None else spectrum(pair)) is not None
    ]
    if len(rows) < 2 or not np.isfinite(rows).all():
        return None
    return estimate(
        rows,
        ratio if temperature is None else partial(to_temperature, temperature=temperature),
        log=False,
    )


@dataclass(frozen=True)
class _Priced:
    """A row over the common prompts.

    own, plain   its counts and those of plain decoding, over n prompts.
    kinds        for each setting: which of the n prompts, and which of the m timed ones, it
                 decoded.
    clock        [m, 6] of the timed prompts: own decode seconds, cycles and prefill seconds, and
                 the baseline's.
    """

    own: Counts
    plain: Counts
    kinds: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
    clock: Floats

    @classmethod
    def of(cls, row: Answered, ids: Sequence[str], timed: Sequence[str]) -> _Priced:
        pairs = {pair.id: pair for pair in row.pairs}
        own = Counts.of({name: pairs[name].sample for name in ids}, ids)
        plain = Counts.of({name: pairs[name].baseline for name in ids}, ids)
        kinds = [
            (
                np.array([row.settings.get(name, "") == one for name in ids]),
                np.array([row.settings.get(name, "") == one for name in timed]),
            )
            for one in sorted({row.settings.get(name, "") for name in ids})
        ]
        clocks = [clock for name in timed if (clock := pairs[name].timed) is not None]
        return cls(
            own,
            plain,
            kinds,
            np.array(
                [
                    [
                        float(value)
                        for run in clock.runs
                        for value in (run.decode_s, run.cycles, run.prefill_s)
                    ]
                    for clock in clocks
                ],
                dtype=np.float64,
            ),
        )

    @property
    def is_known(self) -> bool:
        """Whether every setting of a prompt has a timed one."""
        return all(of_timed.any() for of_prompts, of_timed in self.kinds if of_prompts.any())

    def cycles(self, draws: Floats, timed: Floats) -> Floats:
        """Tokens of plain decoding that all cycles cost, in resamples of the prompts [resamples, n]
        and of the timed ones [resamples, m]."""
        total = np.zeros(len(draws))
        for of_prompts, of_timed in self.kinds:
            seconds, cycles = self.clock[:, 0] * of_timed, self.clock[:, 1] * of_timed
            drawn = timed @ cycles  # of all its timed prompts where none was drawn
            price = np.where(
                drawn > 0,
                (timed @ seconds) / np.where(drawn > 0, drawn, 1),
                seconds.sum() / cycles.sum(),
            )
            total = total + draws @ (self.own.cycles * of_prompts) * price
        return np.asarray(total / self._token(timed))

    def token(self, draws: Floats, timed: Floats) -> Floats:
        """The same of a committed token."""
        return np.asarray(self.cycles(draws, timed) / (draws @ self.own.committed))

    def prefill(self, timed: Floats, column: int = 2) -> Floats:
        """The same of a prefill; 5 for that of plain decoding."""
        return np.asarray((timed @ self.clock[:, column]) / timed.sum(1) / self._token(timed))

    def answer(self, draws: Floats, timed: Floats) -> Floats:
        """The same of an answer."""
        return np.asarray(self.cycles(draws, timed) / draws.sum(1) + self.prefill(timed))

    def plain_answer(self, draws: Floats, timed: Floats) -> Floats:
        return np.asarray(draws @ self.plain.cycles / draws.sum(1) + self.prefill(timed, 5))

    def _token(self, timed: Floats) -> Floats:
        return np.asarray((timed @ self.clock[:, 3]) / (timed @ self.clock[:, 4]))


@dataclass(frozen=True)
class _Frontier:
    """The frontier in each resample, each [resamples, T] but the temperatures [T]: cost of a token
    and of an answer, tokens of an answer."""

    temperatures: Floats
    token: Floats
    answer: Floats
    length: Floats

    @classmethod
    def of(cls, rows: Mapping[float, Sequence[_Priced]], draws: Floats, timed: Floats) -> _Frontier:
        columns: list[list[Floats]] = [[] for _ in range(3)]
        for settings in (rows[t] for t in sorted(rows)):
            length = draws @ settings[0].plain.tokens / draws.sum(1)
            tokens = [row.token(draws, timed) for row in settings]
            answers = [
                length * cost + row.prefill(timed)
                for cost, row in zip(tokens, settings, strict=True)
            ]
            columns[0].append(np.minimum(np.min(tokens, 0), 1.0))
            columns[1].append(
                np.minimum(np.min(answers, 0), settings[0].plain_answer(draws, timed))
            )
            columns[2].append(length)
        token, answer, length = (np.stack(column, 1) for column in columns)
        return cls(np.array(sorted(rows)), token, answer, length)

    @property
    def curve(self) -> Curve:
        return Curve(self.temperatures)


def beside_frontier(
    own: Answered, frontier: Mapping[float, Point], asked: float, between: Between | None = None
) -> dict[str, Any]:
    """The metrics `equal_d_…` of a row, each with `_ci95`, and `judged`.

        equal_d_distortion     nats a token from the target at the temperature asked for
        equal_d_speed          cost of a token of the fastest lossless setting that distorts no more
                               ÷ own
        equal_d_answer, equal_d_length, equal_d_temperature
                               the same of an answer; own tokens ÷ that setting's; its temperature
        judged                 what the verdict needs (`results.metrics.verdict.verdicts`)

    `frontier`: temperature -> lossless decoding there, `asked` among them; `between`: what differs
    between measuring sessions. Empty without a clock or distortions."""
    rows: dict[Any, Answered] = {
        (t, name): Answered(pairs)
        for t, point in frontier.items()
        for name, pairs in point.settings.items()
    }
    clocks = {
        key: {pair.id for pair in row.pairs if pair.timed is not None and is_rated(pair.timed)}
        for key, row in (*rows.items(), ("own", own))
    }
    rows = {key: row for key, row in rows.items() if len(clocks[key]) > 1} | {"own": own}
    ids = sorted(set.intersection(*({pair.id for pair in row.pairs} for row in rows.values())))
    timed = sorted(set.intersection(*(clocks[key] for key in rows)) & set(ids))
    lossless = {t: [key for key in rows if key[0] == t] for t in sorted(frontier)}
    if len(ids) < 2 or len(timed) < 2 or not all(lossless.values()):
        return {}
    priced = {key: _Priced.of(row, ids, timed) for key, row in rows.items()}
    if not all(row.is_known for row in priced.values()):
        return {}
    distances = {
        t: point.distortion for t, point in frontier.items() if point.distortion is not None
    }
    if own.distortion is None or len(distances) < len(frontier):
        return {}
    found, rng = dict[str, list[Floats]](), np.random.default_rng(SEED + 1)
    for draws in resampled(len(ids), FRONTIER_RESAMPLES):
        weights = (
            np.ones((1, len(timed)))
            if len(draws) == 1
            else rng.multinomial(
                len(timed), np.full(len(timed), 1 / len(timed)), size=len(draws)
            ).astype(float)
        )
        line = _Frontier.of(
            {t: [priced[key] for key in keys] for t, keys in lossless.items()}, draws, weights
        )
        values = _at_equal_distortion(
            priced["own"],
            line,
            _drawn(own.distortion, len(draws), rng),
            np.stack([_drawn(distances[t], len(draws), rng) for t in sorted(frontier)], 1),
            asked,
            draws,
            weights,
        )
        for name, one in values.items():
            found.setdefault(name, []).append(one)
    distance = {
        "equal_d_distortion": own.distortion.value,
        "equal_d_distortion_ci95": own.distortion.interval(),
    }
    return distance | _stated(
        {name: np.concatenate(parts) for name, parts in found.items()},
        len(ids),
        len(timed),
        between,
        _sessions(rows.values(), timed),
    )


def _sessions(rows: Iterable[Answered], timed: Sequence[str]) -> int:
    """The fewest measuring sessions in which one of the rows was timed."""
    return min(
        len(
            {
                pair.timed.started
                for pair in row.pairs
                if pair.timed is not None and pair.id in timed
            }
        )
        for row in rows
    )


def _drawn(distortion: Estimate, number: int, rng: np.random.Generator) -> Floats:
    """A distortion in each resample, with its own error; the first one as it is."""
    if number == 1 or not distortion.error:
        return np.full(number, distortion.value)
    return np.asarray(distortion.value + distortion.error * rng.standard_normal(number))


def _at_equal_distortion(
    own: _Priced,
    line: _Frontier,
    distortion: Floats,
    distances: Floats,
    asked: float,
    draws: Floats,
    timed: Floats,
) -> dict[str, Floats]:
    """Beside the fastest of the temperatures whose `distances` [resamples, T] are not above
    `distortion` [resamples], the two at which they are equal included."""
    place = int(np.searchsorted(line.temperatures, asked))
    ends, beyond = [], np.zeros(len(draws), bool)
    for side, rising in ((slice(None, place + 1), False), (slice(place, None), True)):
        temperatures, values = line.temperatures[side], np.maximum(distances[:, side], 0.0)
        if len(temperatures) == 1:
            ends.append(np.full(len(draws), asked))
            beyond |= (distortion > values[:, 0]) & (not rising)
            continue
        level = monotone(values, np.ones_like(values), rising)
        part = Curve(temperatures)
        ends.append(part.matched(level, np.maximum(distortion, 0.0)))
        beyond |= (distortion > level[:, 0]) & (not rising)
    low, high = ends
    inside = (line.temperatures >= low[:, None]) & (line.temperatures <= high[:, None])
    curve, rows = line.curve, np.arange(len(draws))
    costs = np.concatenate(
        [
            np.where(inside, line.token, np.inf),
            np.stack([_at(curve, line.token, end) for end in ends], 1),
        ],
        1,
    )
    at = np.concatenate(
        [np.broadcast_to(line.temperatures, line.token.shape), np.stack(ends, 1)], 1
    )
    best = costs.argmin(1)
    there = at[rows, best]
    return {
        "equal_d_speed": costs[rows, best] / own.token(draws, timed),
        "equal_d_answer": _at(curve, line.answer, there) / own.answer(draws, timed),
        "equal_d_length": draws @ own.own.tokens / draws.sum(1) / _at(curve, line.length, there),
        "equal_d_temperature": there,
        "beyond": beyond.astype(float),
    }


def _at(curve: Curve, values: Floats, temperature: Floats) -> Floats:
    return values[:, 0] if values.shape[1] == 1 else curve.at(values, temperature)


def _stated(
    found: Mapping[str, Floats], n: int, timed: int, between: Between | None, sessions: int
) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    for name, values in found.items():
        if name.startswith("equal"):
            stated |= {name: float(values[0]), f"{name}_ci95": interval(values, min(n, timed))}
    if "equal_d_speed" in found:
        logs = np.log(found["equal_d_speed"][1:])
        error = float(logs.std(ddof=1) * np.sqrt(timed / (timed - 1)))
        speed = Estimate(stated["equal_d_speed"], error, timed - 1.0)
        speed = speed if between is None else between.added_to(speed, sessions)
        stated |= {
            "equal_d_speed_ci95": speed.interval(),
            "judged": Judged(
                speed=speed,
                beyond=float(found["beyond"][1:].mean()),
                n=n,
                between=between,
                sessions=sessions,
            ),
        }
    return stated
