"""The verdict on each row of a table: is it faster than the fastest lossless decoding that distorts
no more? Before that the setting of the row: the fastest on selection prompts, measured on
others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from results.metrics import intervals
from results.metrics.answer_speed import Priced, token_speedup
from results.metrics.delta import Between, Estimate
from results.metrics.summary import Summary
from results.store.sample import Compared, FailedSample

ALPHA = 0.05
"""Of a table's wrong gains, and of its wrong "no gain", together."""
FAMILY = 25
"""Rows of rules in the longest report with verdicts, report=controls_chains. Every setting of a
rule is judged as one of so many (Bonferroni), so that its verdict does not depend on the rows that
stand beside it."""
LEVEL = ALPHA / FAMILY
"""Of the one-sided tests of one setting."""
NOTHING = 1.05
"""A ratio of speeds that is shown to be below this is no gain above 5%."""
MOST = 100_000
"""More prompts than these are not asked for."""
Kind = Literal["gain", "no gain above 5%", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision.

    kind     in words; those of `Judged.verdict`.
    needed   undecided: about how many prompts, timed in proportion, would decide at this ratio and
             spread; None where none of up to 100,000 would.
    far      undecided, however many prompts: no lossless setting distorts as much.
    """

    kind: Kind
    needed: int | None = None
    far: bool = False

    @property
    def text(self) -> str:
        """`no gain above 5%`; `undecided, n ≈ 1,200`."""
        if self.kind != "undecided":
            return self.kind
        if self.far:
            return "undecided, since no lossless setting distorts as much"
        return f"undecided, n ≈ {self.needed:,}" if self.needed else f"undecided, n > {MOST:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the verdict on a setting needs.

    speed       per token, over that of the fastest lossless setting that distorts no more.
    beyond      share of the resamples in which the row distorts over 5% more than every lossless
                setting: at temperature 1 mostly, more than greedy decoding.
    n           prompts.
    is_control  the row is no rule: it is judged as one, and is not counted among them.
    between     what differs between measuring sessions, which is in the error of `speed`; None: not
                known.
    sessions    in which the row, and what it is compared with, were timed.
    """

    speed: Estimate
    beyond: float
    n: int
    is_control: bool = False
    between: Between | None = None
    sessions: int = 1

    @property
    def verdict(self) -> Verdict:
        """The verdict on this setting, in whatever table it stands.

        gain              faster, and some lossless setting distorts as much
        no gain above 5%  the ratio of speeds is below 1.05
        undecided         anything else. What distorts more than every lossless setting, and is
                          faster, is compared with nothing like it: blind acceptance of half of the
                          draft would be a gain there.

        Both tests are one-sided at `LEVEL`."""
        far = self.beyond >= 1 - ALPHA
        if not far and self.speed.p_above(1.0) <= LEVEL:
            return Verdict("gain")
        if self.speed.p_below(NOTHING) <= LEVEL:
            return Verdict("no gain above 5%")
        return Verdict("undecided", None if far else self._needed(), far)

    def _needed(self) -> int | None:
        """The prompts at which the error, which shrinks with their root, would decide either way at
        this ratio. What differs between sessions does not shrink with the prompts; without more
        sessions it bounds what can be decided."""
        if not self.speed.error:
            return None
        fixed = 0.0 if self.between is None else self.between.of_ratio(self.sessions)
        of_prompts = max(self.speed.error**2 - fixed, 0.0)
        quantile = intervals.NORMAL.inv_cdf(1 - LEVEL)
        needed = []
        for room in (self.speed.at, math.log(NOTHING) - self.speed.at):
            left = (room / quantile) ** 2 - fixed
            if room > 0 and left > 0:
                needed.append(self.n * of_prompts / left)
        least = min(needed, default=math.inf)
        return max(math.ceil(least), self.n + 1) if least < MOST else None


@dataclass(frozen=True, slots=True)
class Answered:
    """The reported prompts of a row.

    pairs       each beside autoregressive decoding.
    settings    prompt id -> the setting that decoded it; empty where one setting decoded all.
    distortion  nats per token from the target at the temperature that the row is judged at; None
                where it is not known.
    """

    pairs: Sequence[Compared]
    settings: Mapping[str, str] = field(default_factory=dict)
    distortion: Estimate | None = None


def findings(cells: Sequence[tuple[str, Summary]]) -> list[str]:
    """A sentence on each row that was judged, the fastest rule first and controls last; with
    several rules, one on all of them comes before."""
    judged = [(name, summary) for name, summary in cells if summary.judged is not None]
    judged.sort(key=lambda row: (row[1].judged.is_control, -(row[1].equal_d_speed or 0)))
    sentences = [
        f"{name}: {summary.judged.verdict.text}. {_beside(summary)}." for name, summary in judged
    ]
    rules = {
        name: summary.judged.verdict for name, summary in judged if not summary.judged.is_control
    }
    return sentences if len(rules) < 2 else [_on_all(rules), *sentences]


def _on_all(decided: Mapping[str, Verdict]) -> str:
    """Which rules are a gain, and how many are what else."""
    of: dict[str, list[str]] = {}
    for name, verdict in decided.items():
        of.setdefault(verdict.kind, []).append(name)
    ahead = of.pop("gain", [])
    others = "; ".join(f"{len(names)} {kind}" for kind, names in of.items())
    named = (
        f"{'; '.join(ahead)} {'are gains' if len(ahead) > 1 else 'is a gain'}"
        if ahead
        else "none is a gain"
    )
    return (
        f"Of {len(decided)} rules, {named}: faster per token than the fastest lossless setting "
        f"that distorts no more{f'; {others}' if others else ''}."
    )


def _beside(summary: Summary) -> str:
    """`0.176 nats per token from the target; 0.97× [0.94, 1.00] as fast per token as the fastest
    lossless decoding that distorts no more (T = 0.15), 1.02× … on its own draft; 1.05× …`."""
    on_own = (
        ""
        if summary.equal_d_speed_own is None
        else f", {_ratio(summary, 'equal_d_speed_own')} on its own draft"
    )
    return (
        f"{summary.equal_d_distortion:.3f} nats per token from the target; "
        f"{_ratio(summary, 'equal_d_speed')} as fast per token as the fastest lossless decoding "
        f"that distorts no more (T = {summary.equal_d_temperature:.2f}){on_own}; "
        f"{_ratio(summary, 'equal_d_answer')} per answer, {_ratio(summary, 'equal_d_length')} "
        "as long"
    )


def _ratio(summary: Summary, name: str) -> str:
    """`1.25× [1.10, 1.40]`."""
    value, interval = getattr(summary, name), getattr(summary, f"{name}_ci95")
    ends = "" if interval is None else f" [{', '.join(f'{end:.2f}' for end in interval)}]"
    return f"{'–' if value is None else f'{value:.2f}×'}{ends}"


Records = Sequence[Compared | FailedSample]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The setting that some prompts are reported with.

    setting     its name.
    reported    ids of these prompts.
    selection   prompts that selected it; 0 where there was nothing to select from.
    """

    setting: str
    reported: tuple[str, ...]
    selection: int


def choose(candidates: Mapping[str, Records], ids: Sequence[str]) -> list[Chosen]:
    """Which setting each half of the prompts is reported with: the other half selects it.

    candidates   setting -> its prompts beside their baseline.
    ids          all prompts in the order in which they are timed
                 (`results.store.sample.timing_order`).

    The items take turns in the halves; samples of one item stay together. The fastest has the
    largest `speedup_modelled` on the selection prompts; of equals the first. Raises ValueError, one
    line, for a single item, and where no setting has a speed on its selection prompts."""
    items = {
        record.id: record.sample.item
        for records in candidates.values()
        for record in records
        if isinstance(record, Compared)
    }
    place = {item: i for i, item in enumerate(dict.fromkeys(items.get(name, name) for name in ids))}
    first, second = (
        tuple(name for name in ids if place[items.get(name, name)] % 2 == turn) for turn in (0, 1)
    )
    if not second:
        raise ValueError("one prompt selects, so none is left to report: give more prompts (n=)")
    return [
        _chosen(candidates, first, frozenset(second)),
        _chosen(candidates, second, frozenset(first)),
    ]


def reported(
    candidates: Mapping[str, Records], chosen: Sequence[Chosen]
) -> list[Compared | FailedSample]:
    """The reported prompts, each from the cell of its setting, sorted by id."""
    settings = _settings(chosen)
    by_id = {
        setting: {record.id: record for record in candidates[setting]}
        for setting in set(settings.values())
    }
    records = [by_id[setting][name] for name, setting in settings.items() if name in by_id[setting]]
    return sorted(records, key=lambda record: record.id)


def answered(candidates: Mapping[str, Records], chosen: Sequence[Chosen]) -> Answered:
    """The reported prompts that did not fail, as a row."""
    pairs = [record for record in reported(candidates, chosen) if isinstance(record, Compared)]
    settings = _settings(chosen)
    return Answered(pairs, settings if len(set(settings.values())) > 1 else {})


def _settings(chosen: Sequence[Chosen]) -> dict[str, str]:
    """Prompt id -> the setting that it is reported with."""
    return {name: half.setting for half in chosen for name in half.reported}


def _chosen(
    candidates: Mapping[str, Records],
    to_report: tuple[str, ...],
    selecting: frozenset[str],
) -> Chosen:
    if len(candidates) == 1:
        return Chosen(next(iter(candidates)), to_report, 0)
    speeds = {}
    for setting, records in candidates.items():
        pairs = [pair for pair in records if isinstance(pair, Compared) and pair.id in selecting]
        speed = Priced.of(pairs).estimate(token_speedup)
        if speed is not None:
            speeds[setting] = speed.value
    if not speeds:
        raise ValueError(
            f"no setting has a speed on the {len(selecting)} prompts that select: give at least "
            "timed=2, so that prompts of either part are timed"
        )
    return Chosen(max(speeds, key=lambda setting: speeds[setting]), to_report, len(selecting))
