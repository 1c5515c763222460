"""Checks of the numbers that a paper prints, each against the others.

A check yields (place, finding). A printed number stands for all that round to it: a finding says that no numbers which
are printed like these satisfy the relation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from results.reports.axes import Frozen
from results.reports.published import Key, Numbers, Printed

Finding = tuple[Key, str]
EPS = 1e-9
MAX_TRIALS = 20_000
HIGHER_IS_BETTER = {"tau", "speedup", "tokens_per_s", "accuracy", "win_rate", "judge_score"}


class Ratio(Frozen):
    """`value` is `of` over the number `over`, of the same row and column unless another is named; times `scale`."""

    value: str
    of: str
    over: str
    over_row: str | None = None
    over_column: str | None = None
    scale: float = 1.0


class Lengths(Frozen):
    """Another file of the paper that has numbers of `row` for each draft length, its rows the columns of this file."""

    file: str
    row: str


class PaperTable(Frozen):
    """What a file of results/published holds, and the relations its numbers must satisfy.

    source     paper and table.
    mean       the column that is the mean of the other columns.
    tau        what τ counts by the paper's definition: "committed" tokens of a cycle, or "accepted" draft tokens.
    tau_said   where the paper defines τ.
    length     L of every row.
    length_at  the part of the row's name that is its L.
    ratios     numbers that are ratios of two others.
    out_of     row or column -> trials behind a percentage: it must be k over this number.
    trials     how `out_of` was counted.
    scores     the percentages that `out_of` speaks of.
    total      percentages of one cell that make 100.
    wilson     percentages whose NAME_low and NAME_high are a Wilson interval.
    best       bold marks the best of its column within a pair.
    same       name in this file -> its name in other files.
    methods    row -> the method, of those that other papers have too.
    setting    hardware, draft and temperature of the speedups, as far as they are printed.
    js_thresholds  row or pair -> threshold of the JS divergence.
    lengths    the file that has a row of this one for each draft length.
    """

    source: str
    mean: str | None = None
    tau: Literal["committed", "accepted"] | None = None
    tau_said: str = ""
    length: int | None = None
    length_at: int | None = None
    ratios: tuple[Ratio, ...] = ()
    out_of: Mapping[str, int] = Field(default={})
    trials: str = ""
    scores: tuple[str, ...] = ("accuracy",)
    total: tuple[str, ...] = ()
    wilson: tuple[str, ...] = ()
    best: bool = False
    same: Mapping[str, str] = Field(default={})
    methods: Mapping[str, str] = Field(default={})
    setting: str = ""
    js_thresholds: Mapping[str, float] = Field(default={})
    lengths: Lengths | None = None


def check(table: PaperTable, numbers: Numbers) -> list[Finding]:
    """All findings on one file."""
    checks = (means, speedups_above_tau, taus_above_length, ratios, baselines, shares_of_trials, totals,
              wilson_intervals, bold_without_reason)
    return [finding for one in checks for finding in one(table, numbers)]


def means(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A mean must be that of its row."""
    for key, printed in numbers.items():
        parts = [other for place, other in numbers.items()
                 if place != key and place._replace(column=key.column) == key] if key.column == table.mean else []
        if parts:
            low, high = (sum(ends) / len(parts) for ends in zip(*(part.ends for part in parts), strict=True))
            if not _overlap(printed.ends, (low, high)):
                mean = sum(part.value for part in parts) / len(parts)
                yield key, (f"{table.source} prints the mean {printed.text}; its {len(parts)} columns have the mean "
                            f"{mean:.{printed.decimals + 1}f}")


def speedups_above_tau(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A cycle takes at least one pass of the target."""
    for key, speedup in numbers.items():
        tau = numbers.get(key._replace(value_name="tau"))
        if key.value_name != "speedup" or tau is None or table.tau is None:
            continue
        bonus = 1 if table.tau == "accepted" else 0
        same_rounding = speedup.decimals == tau.decimals and speedup.value > tau.value + bonus + EPS
        if same_rounding or speedup.ends[0] > tau.ends[1] + bonus + EPS:
            limit = "τ" if not bonus else "τ + 1"
            yield key, (f"the speedup is above {limit}, but a cycle takes at least one pass of the target and yields "
                        f"{limit} tokens ({table.tau_said}): such a speedup cannot come from accepted drafts alone")


def taus_above_length(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A cycle yields at most L accepted tokens and one of the target's own."""
    for key, tau in numbers.items():
        length = _length(table, key)
        if key.value_name != "tau" or length is None or table.tau is None:
            continue
        if tau.ends[0] > length + 1 + EPS:
            yield key, (f"τ is above L + 1 = {length + 1}, the most that a path of L tokens and the target's own token "
                        "make: L is not the length of the draft's paths")
        elif table.tau == "accepted" and tau.ends[0] > length + EPS:
            yield key, (f"τ is above L = {length}, the most if τ counts accepted draft tokens ({table.tau_said}): it "
                        "must include the target's own token")


def ratios(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A ratio must be that of its two numbers."""
    for ratio in table.ratios:
        for key, printed in numbers.items():
            of = numbers.get(key._replace(value_name=ratio.of))
            over = numbers.get(Key(key.pair, ratio.over_row or key.row, ratio.over_column or key.column, ratio.over))
            if key.value_name != ratio.value or of is None or over is None:
                continue
            (low, high), (over_low, over_high) = of.ends, over.ends
            if not _overlap(printed.ends, (ratio.scale * low / over_high, ratio.scale * high / over_low)):
                yield key, (f"{table.source} prints {printed.text}, but {of.text} / {over.text} = "
                            f"{ratio.scale * of.value / over.value:.{printed.decimals + 1}f}")


def baselines(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """Tokens/s over speedup is the speed of autoregressive decoding, one number for all rows of a pair and column."""
    implied: dict[tuple[str, str], dict[Key, tuple[float, float]]] = defaultdict(dict)
    for key, speed in numbers.items():
        speedup = numbers.get(key._replace(value_name="speedup"))
        if key.value_name == "tokens_per_s" and speedup is not None:
            low, high = speed.ends[0] / speedup.ends[1], speed.ends[1] / speedup.ends[0]
            implied[key.pair, key.column][key] = low, high
    for rows in implied.values():
        shared = max((low for low, _ in rows.values()), key=lambda at: sum(_holds(ends, at) for ends in rows.values()))
        agreeing = [ends for ends in rows.values() if _holds(ends, shared)]
        most, least = max(low for low, _ in agreeing), min(high for _, high in agreeing)
        for key, (low, high) in rows.items():
            if not _holds((low, high), shared):
                of, over = numbers[key], numbers[key._replace(value_name="speedup")]
                others = f"{len(agreeing)} other row{'s' if len(agreeing) > 1 else ''} of this column"
                yield key, (f"{of.text} tokens/s at {over.text}× imply autoregressive decoding at "
                            f"{of.value / over.value:.1f} tokens/s ({low:.1f} to {high:.1f} with rounding); {others}: "
                            f"{most:.1f} to {least:.1f}")


def shares_of_trials(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A percentage of n trials is k / n, rounded or cut off."""
    for key, printed in numbers.items():
        trials = next((n for name, n in table.out_of.items() if name in (*key.row.split(" / "), key.column)), None)
        if key.value_name not in table.scores or trials is None:
            continue
        below = math.floor(printed.value / 100 * trials)
        near = [(k, 100 * k / trials) for k in (below, below + 1)]
        if not any(printed.ends[0] - EPS <= share < printed.value + printed.step for _, share in near):
            fractions = " and ".join(f"{k}/{trials} = {share:.{printed.decimals + 1}f}" for k, share in near)
            yield key, f"{printed.text}% is no k/{trials} ({table.trials}); {fractions}"


def totals(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """Shares of a whole make 100%."""
    places = dict.fromkeys(key._replace(value_name="") for key in numbers if key.value_name in table.total)
    for place in places:
        keys = [place._replace(value_name=name) for name in table.total]
        parts = [numbers[key] for key in keys]
        low, high = (sum(ends) for ends in zip(*(part.ends for part in parts), strict=True))
        if not low - EPS <= 100 <= high + EPS:
            total = sum(part.value for part in parts)
            for key in keys:
                yield key, f"the {len(parts)} shares add up to {total:.{parts[0].decimals}f}%"


def wilson_intervals(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """Some number of trials must give the share and both ends."""
    for key, share in numbers.items():
        if key.value_name not in table.wilson:
            continue
        low, high = (numbers[key._replace(value_name=f"{key.value_name}_{end}")] for end in ("low", "high"))
        if not _is_wilson(share, low, high):
            yield key, f"no n up to {MAX_TRIALS:,} gives {share.text}% the Wilson interval [{low.text}, {high.text}]"


def bold_without_reason(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A bold number must be the best of its column."""
    for key, printed in numbers.items():
        if not (table.best and printed.bold and key.value_name in HIGHER_IS_BETTER):
            continue
        rivals = {place.row: other for place, other in numbers.items() if place._replace(row=key.row) == key}
        row, best = max(rivals.items(), key=lambda rival: rival[1].value)
        if best.value > printed.value + EPS:
            yield key, f"printed bold, but {row} has {best.text}"


def differences(tables: Sequence[tuple[PaperTable, Numbers]]) -> Iterator[tuple[str, Key, str]]:
    """(source, place, finding) of numbers that two files of one paper print differently."""
    prints: dict[Key, list[tuple[str, Key, Printed]]] = defaultdict(list)
    for table, numbers in tables:
        for key, printed in numbers.items():
            prints[Key(*(table.same.get(name, name) for name in key))].append((table.source, key, printed))
    for places in prints.values():
        for source, key, printed in places:
            for other, _, elsewhere in places:
                if printed.differs(elsewhere):
                    yield source, key, f"{source} prints {printed.text}, {other} {elsewhere.text}"


def _length(table: PaperTable, key: Key) -> int | None:
    if table.length_at is None:
        return table.length
    part = key.row.split(" / ")[table.length_at]
    return int(part) if part.isdigit() else None


def _is_wilson(share: Printed, low: Printed, high: Printed) -> bool:
    from statsmodels.stats.proportion import proportion_confint  # takes a second, which a dry run should not cost

    n = np.arange(1, MAX_TRIALS + 1)
    least = np.ceil(share.ends[0] / 100 * n - EPS)
    for more in range(math.ceil(share.step / 100 * MAX_TRIALS) + 1):  # every k / n that is printed as the share
        k = np.minimum(least + more, n)
        ends = [100 * k / n, *(100 * end for end in proportion_confint(k, n, method="wilson"))]
        fits = [(printed.ends[0] - EPS <= end) & (end <= printed.ends[1] + EPS)
                for printed, end in zip((share, low, high), ends, strict=True)]
        if np.logical_and.reduce(fits).any():
            return True
    return False


def _overlap(one: Iterable[float], other: Iterable[float]) -> bool:
    (low, high), (other_low, other_high) = one, other
    return low <= other_high + EPS and other_low <= high + EPS


def _holds(ends: tuple[float, float], at: float) -> bool:
    return ends[0] - EPS <= at <= ends[1] + EPS
