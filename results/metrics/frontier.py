"""Beside lossless decoding that distorts no more: what a row costs per token, over what the
fastest lossless setting costs.

Costs are counted in tokens of plain decoding: all cycles at the pooled time of a cycle of the timed
prompts, and the prompt's forwards, over the emitted tokens. Times are ratios to the baseline timed
beside them. The bootstrap over prompts, timed ones included, redoes the choice of the fastest
setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from results.metrics.delta import Between, Estimate, estimate, ratio
from results.metrics.distortion import nats, spectrum, to_temperature
from results.metrics.intervals import SEED
from results.metrics.tau_gain import Counts, Floats, interval, resampled
from results.metrics.verdict import NOTHING, Answered, Judged
from results.store.sample import Compared, is_rated

FRONTIER_RESAMPLES = 4000
PLAIN = "plain decoding"


@dataclass(frozen=True)
class Lossless:
    """A lossless setting at one temperature.

    setting      its name, the same at every temperature.
    temperature  at which it decodes.
    pairs        its prompts beside plain decoding.
    distortion   nats per token from the target that rows are judged by.
    same_draft   whether it drafts as the row does that is compared with it.
    """

    setting: str
    temperature: float
    pairs: Sequence[Compared]
    distortion: Estimate
    same_draft: bool = False


def distance_of(pairs: Sequence[Compared], temperature: float | None = None) -> Estimate | None:
    """Distortion, nats per token, with its error over prompts: from the cell's own target or, with
    a `temperature`, from the untruncated target there. None where fewer than two prompts have it,
    or it is infinite."""
    adds, statistic = nats, ratio
    if temperature is not None:
        adds, statistic = spectrum, partial(to_temperature, temperature=temperature)
    rows = [row for row in map(adds, pairs) if row is not None]
    if len(rows) < 2 or not np.isfinite(rows).all():
        return None
    return estimate(rows, statistic, log=False)


@dataclass(frozen=True)
class Draws:
    """How often prompts are drawn in each resample: all of them [resamples, n], and the timed ones
    [resamples, m]."""

    prompts: Floats
    timed: Floats


@dataclass(frozen=True)
class _Priced:
    """A row over the common prompts.

    counts, plain
                 its counts and those of plain decoding, over n prompts.
    kinds        for each setting: which of the n prompts, and which of the m timed ones, it
                 decoded.
    clock        [m, 6] of the timed prompts: its decode seconds, cycles and prefill seconds, and
                 the baseline's.
    sessions     the measuring sessions that timed it.
    unit         tokens of plain decoding at the temperature that rows are judged at, in one of the
                 plain decoding beside the row.
    """

    counts: Counts
    plain: Counts
    kinds: list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]
    clock: Floats
    sessions: frozenset[str]
    unit: float = 1.0

    @classmethod
    def of(cls, row: Answered, ids: Sequence[str], timed: Sequence[str]) -> _Priced:
        """`ids` and `timed`: of the common prompts, and of the timed ones of these."""
        pairs = {pair.id: pair for pair in row.pairs}
        settings, settings_timed = (
            np.array([row.settings.get(name, "") for name in names]) for names in (ids, timed)
        )
        clocks = list(filter(None, (pairs[name].timed for name in timed)))
        runs = [run for clock in clocks for run in clock.runs]
        seconds = np.array([[run.decode_s, run.cycles, run.prefill_s] for run in runs], float)
        return cls(
            Counts.of({name: pairs[name].sample for name in ids}, ids),
            Counts.of({name: pairs[name].baseline for name in ids}, ids),
            [(settings == kind, settings_timed == kind) for kind in np.unique(settings)],
            seconds.reshape(-1, 6),
            frozenset(clock.started for clock in clocks),
        )

    @property
    def is_known(self) -> bool:
        """Whether every setting of a prompt has a timed one."""
        return all(of_timed.any() for of_prompts, of_timed in self.kinds if of_prompts.any())

    def token(self, draws: Draws) -> Floats:
        """Cost of an emitted token in each resample."""
        return np.asarray(self._answers(draws) / (draws.prompts @ self.counts.tokens))

    def answer(self, draws: Draws) -> Floats:
        """Cost of an answer in each resample."""
        return np.asarray(self._answers(draws) / draws.prompts.sum(1))

    def plain_token(self, draws: Draws) -> Floats:
        """The same as `token`, of plain decoding."""
        prefill = self._prefill(draws, 5) * draws.prompts.sum(1)
        whole = self.unit * (draws.prompts @ self.plain.cycles) + prefill
        return np.asarray(whole / (draws.prompts @ self.plain.tokens))

    def plain_length(self, draws: Draws) -> Floats:
        """Tokens of an answer of plain decoding."""
        return np.asarray((draws.prompts @ self.plain.tokens) / draws.prompts.sum(1))

    def length(self, draws: Draws) -> Floats:
        """Tokens of an answer."""
        return np.asarray((draws.prompts @ self.counts.tokens) / draws.prompts.sum(1))

    def _answers(self, draws: Draws) -> Floats:
        """Cost of all answers, prompts included."""
        total = np.zeros(len(draws.prompts))
        for of_prompts, of_timed in self.kinds:
            seconds, cycles = self.clock[:, 0] * of_timed, self.clock[:, 1] * of_timed
            drawn = draws.timed @ cycles  # of all its timed prompts where none was drawn
            price = np.where(
                drawn > 0,
                (draws.timed @ seconds) / np.where(drawn > 0, drawn, 1),
                seconds.sum() / cycles.sum(),
            )
            total = total + draws.prompts @ (self.counts.cycles * of_prompts) * price
        cycles_cost = total * self.unit / self._plain_price(draws)
        return np.asarray(cycles_cost + self._prefill(draws, 2) * draws.prompts.sum(1))

    def _prefill(self, draws: Draws, column: int) -> Floats:
        """Cost of a prompt's forwards; column 2 for the row's own, 5 for plain decoding's."""
        seconds = (draws.timed @ self.clock[:, column]) / draws.timed.sum(1)
        return np.asarray(seconds * self.unit / self._plain_price(draws))

    def _plain_price(self, draws: Draws) -> Floats:
        """Seconds of a token of the plain decoding beside the row."""
        return np.asarray((draws.timed @ self.clock[:, 3]) / (draws.timed @ self.clock[:, 4]))


def beside_lossless(
    row: Answered,
    temperature: float,
    lossless: Sequence[Lossless],
    between: Between | None = None,
    is_control: bool = False,
) -> dict[str, Any]:
    """The metrics `equal_d_…` of a row, each with `_ci95`, and `judged`.

        equal_d_distortion     nats per token from the target that the row is judged by
        equal_d_speed          cost of a token of the fastest lossless setting, or of plain
                               decoding, that distorts no more ÷ the row's
        equal_d_speed_own      the same of lossless decoding on the row's own draft alone
        equal_d_answer, equal_d_length, equal_d_temperature
                               of that fastest setting: the same of an answer, which has plain
                               decoding's length; the row's tokens ÷ its; its temperature
        judged                 what the verdict needs (`Judged.verdict`)

    temperature   at which the row decodes. At 0 greedy decoding distorts no more than the row: it
                  takes the likeliest token in every context.
    lossless      settings at several temperatures; of one between two of them, cost and distortion
                  lie between theirs.
    between       what differs between measuring sessions.
    is_control    the row is shown beside the rules, and is none of them.

    Settings with fewer than two timed prompts do not compare. Empty without a clock or a
    distortion."""
    compared = [setting for setting in lossless if len(_timed(setting.pairs)) > 1]
    known = [row.pairs, *(setting.pairs for setting in compared)]
    ids = sorted(set.intersection(*({pair.id for pair in pairs} for pairs in known)))
    timed = sorted(set.intersection(*map(_timed, known)) & set(ids))
    if row.distortion is None or not compared or len(ids) < 2 or len(timed) < 2:
        return {}
    rows = [row, *(Answered(setting.pairs) for setting in compared)]
    priced = [_Priced.of(each, ids, timed) for each in rows]
    ours, *others = _in_one_unit(priced, [temperature, *(each.temperature for each in compared)])
    if not ours.is_known:
        return {}
    rng, parts = np.random.default_rng(SEED + 1), list[dict[str, Floats]]()
    for prompts in resampled(len(ids), FRONTIER_RESAMPLES):
        draws = Draws(prompts, _of_timed(len(prompts), len(timed), rng))
        distortion = np.maximum(_drawn(row.distortion, len(prompts), rng), 0.0)
        choices = _choices(compared, others, draws, rng)
        parts.append(_fastest(ours, temperature, distortion, choices, draws))
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    stated = _stated(whole, row.distortion, min(len(ids), len(timed)))
    speeds = {
        name: _speed(whole[name], len(timed), between, priced)
        for name in ("equal_d_speed", "equal_d_speed_own")
        if name in stated
    }
    stated |= {f"{name}_ci95": speed.interval() for name, speed in speeds.items()}
    return stated | {
        "judged": Judged(
            speed=speeds["equal_d_speed"],
            beyond=float(whole["beyond"][1:].mean()),
            n=len(ids),
            is_control=is_control,
            between=between,
            sessions=_sessions(priced),
        )
    }


def _timed(pairs: Iterable[Compared]) -> set[str]:
    """Ids of the prompts that were timed and took a cycle."""
    return {pair.id for pair in pairs if pair.timed is not None and is_rated(pair.timed)}


def _of_timed(resamples: int, size: int, rng: np.random.Generator) -> Floats:
    """How often each timed prompt is drawn; the first resample of one is every prompt once."""
    if resamples == 1:
        return np.ones((1, size))
    return rng.multinomial(size, np.full(size, 1 / size), size=resamples).astype(float)


def _in_one_unit(rows: Sequence[_Priced], temperatures: Sequence[float]) -> list[_Priced]:
    """The rows counted in tokens of sampled plain decoding. A greedy token of plain decoding costs
    less; how much less, the rows say that were timed in the same sessions."""
    greedy = [row for row, at in zip(rows, temperatures, strict=True) if at == 0]
    sampled = [row for row, at in zip(rows, temperatures, strict=True) if at > 0]
    together = len({row.sessions for row in rows}) == 1
    if not greedy or not sampled or not together:
        return list(rows)
    prices = []
    for group in (greedy, sampled):
        seconds, tokens = np.sum([row.clock[:, 3:5].sum(0) for row in group], 0)
        prices.append(seconds / tokens)
    unit = float(prices[0] / prices[1])
    return [
        replace(row, unit=unit) if at == 0 else row
        for row, at in zip(rows, temperatures, strict=True)
    ]


@dataclass(frozen=True)
class _Choice:
    """What a row may be compared with, in each resample [resamples]: its distortion and cost of a
    token; plain decoding's tokens per answer there."""

    setting: str
    temperature: float
    same_draft: bool
    distortion: Floats
    cost: Floats
    length: Floats


def _choices(
    lossless: Sequence[Lossless], priced: Sequence[_Priced], draws: Draws, rng: np.random.Generator
) -> list[_Choice]:
    """Every lossless setting at every temperature, and plain decoding."""
    choices, plain, drawn = list[_Choice](), dict[float, _Choice](), dict[float, Floats]()
    for row, price in zip(lossless, priced, strict=True):
        at = row.temperature
        if at not in drawn:
            drawn[at] = np.maximum(_drawn(row.distortion, len(draws.prompts), rng), 0.0)
        length = price.plain_length(draws)
        cost = price.token(draws)
        choices.append(_Choice(row.setting, at, row.same_draft, drawn[at], cost, length))
        if at not in plain:
            cost = price.plain_token(draws)
            plain[at] = _Choice(PLAIN, at, False, drawn[at], cost, length)
    return [*choices, *plain.values()]


class _Offer(NamedTuple):
    """A choice, or what lies between two at neighbouring temperatures, in each resample
    [resamples]: its cost of a token, infinite where it distorts more than the row; plain decoding's
    tokens per answer there; its temperature."""

    cost: Floats
    length: Floats
    temperature: Floats
    same_draft: bool


def _offers(temperature: float, distortion: Floats, choices: Sequence[_Choice]) -> Iterator[_Offer]:
    """All that a row with this distortion is compared with."""
    for choice in choices:
        is_nearest = choice.temperature == temperature == 0
        allowed = (choice.distortion <= distortion) | is_nearest
        yield _Offer(
            np.where(allowed, choice.cost, np.inf),
            choice.length,
            np.full(len(distortion), choice.temperature),
            choice.same_draft,
        )
    for setting in dict.fromkeys(choice.setting for choice in choices):
        line = sorted(
            (choice for choice in choices if choice.setting == setting),
            key=lambda choice: -choice.temperature,
        )
        for hot, cool in pairwise(line):
            span = cool.distortion - hot.distortion
            inside = (hot.distortion <= distortion) & (distortion < cool.distortion)
            share = np.where(inside, (distortion - hot.distortion) / np.where(inside, span, 1), 0.0)
            yield _Offer(
                np.where(inside, hot.cost + share * (cool.cost - hot.cost), np.inf),
                hot.length + share * (cool.length - hot.length),
                hot.temperature + share * (cool.temperature - hot.temperature),
                hot.same_draft,
            )


def _fastest(
    row: _Priced, temperature: float, distortion: Floats, choices: Sequence[_Choice], draws: Draws
) -> dict[str, Floats]:
    """The row beside the fastest of the choices that distort no more."""
    offers = list(_offers(temperature, distortion, choices))
    best = np.argmin([offer.cost for offer in offers], 0), np.arange(len(distortion))
    cost = np.stack([offer.cost for offer in offers])[best]
    length = np.stack([offer.length for offer in offers])[best]
    token = row.token(draws)
    values = {
        "equal_d_speed": cost / token,
        "equal_d_answer": cost * length / row.answer(draws),
        "equal_d_length": row.length(draws) / length,
        "equal_d_temperature": np.stack([offer.temperature for offer in offers])[best],
        "beyond": _beyond(distortion, choices),
    }
    on_own_draft = [offer.cost for offer in offers if offer.same_draft]
    if on_own_draft:
        values["equal_d_speed_own"] = np.min(on_own_draft, 0) / token
    return values


def _beyond(distortion: Floats, choices: Sequence[_Choice]) -> Floats:
    """1 where the row distorts over 5% more than every choice."""
    most = np.max([choice.distortion for choice in choices], 0)
    return np.asarray(distortion > NOTHING * most, float)


def _drawn(distortion: Estimate, number: int, rng: np.random.Generator) -> Floats:
    """A distortion in each resample, with its own error; the first one as it is."""
    if number == 1 or not distortion.error:
        return np.full(number, distortion.value)
    return np.asarray(distortion.value + distortion.error * rng.standard_normal(number))


def _stated(values: dict[str, Floats], distortion: Estimate, n: int) -> dict[str, Any]:
    """Each metric that is finite in every resample, with its interval."""
    stated: dict[str, Any] = {
        "equal_d_distortion": distortion.value,
        "equal_d_distortion_ci95": distortion.interval(),
    }
    for name, resamples in values.items():
        if name.startswith("equal_d") and np.isfinite(resamples).all():
            stated |= {name: float(resamples[0]), f"{name}_ci95": interval(resamples, n)}
    return stated


def _speed(
    resamples: Floats, timed: int, between: Between | None, rows: Sequence[_Priced]
) -> Estimate:
    """The ratio of speeds with the error of the bootstrap and of the measuring sessions."""
    error = float(np.log(resamples[1:]).std(ddof=1) * np.sqrt(timed / (timed - 1)))
    speed = Estimate(float(resamples[0]), error, timed - 1.0)
    if between is None:
        return speed
    together = len({row.sessions for row in rows}) == 1
    return between.added_to(speed, _sessions(rows), methods=2, plain=0 if together else 2)


def _sessions(rows: Sequence[_Priced]) -> int:
    """The fewest measuring sessions in which one of the rows was timed."""
    return min(len(row.sessions) for row in rows)
