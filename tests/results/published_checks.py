"""What a paper's numbers say of each other: the checks behind results/published/doubts.csv.

A check yields (place, finding). A printed number stands for all that round to it: a finding says that no numbers which
are printed like these satisfy the relation. published_tables.yaml holds the relations of each file."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from statsmodels.stats.proportion import proportion_confint

from results.reports.published import Key, Numbers, Printed, load_published

About = Mapping[str, Any]
Finding = tuple[Key, str]
TABLES: Mapping[str, About] = yaml.safe_load(Path(__file__).with_name("published_tables.yaml").read_text("utf-8"))
EPS = 1e-9
MAX_TRIALS = 20_000
HIGHER_IS_BETTER = {"tau", "speedup", "tokens_per_s", "accuracy", "win_rate", "judge_score"}
FEWEST, NARROW = 10, 0.1
"""Rows of two models run parallel if their differences, at least `FEWEST`, spread over less than `NARROW` of what the
numbers themselves spread over. The next narrowest pair of models in the four papers has 0.22."""


def found() -> dict[str, dict[Key, list[str]]]:
    """File name without its ending -> findings by place, in the order of doubts.csv."""
    checks = (means, speedups_above_tau, taus_above_length, ratios, baselines, shares_of_trials, totals,
              wilson_intervals, bold_without_reason, repeated_rows, parallel_models, thresholds_above_bound,
              lengths_and_speeds, differences)
    every: dict[str, dict[Key, list[str]]] = {}
    for name, about in TABLES.items():
        every[name] = defaultdict(list)
        for check in checks:
            for key, text in check(about | {"name": name}, load_published(f"{name}.csv")):
                every[name][key].append(text)
    return every


def step(printed: Printed) -> float:
    """One unit of the last digit."""
    return 10.0**-printed.decimals


def ends(printed: Printed) -> tuple[float, float]:
    """The least and the greatest number that rounds to this one."""
    return printed.value - step(printed) / 2, printed.value + step(printed) / 2


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] + EPS and other[0] <= one[1] + EPS


def means(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A mean must be that of its row."""
    for key, printed in numbers.items():
        if key.column != about.get("mean"):
            continue
        parts = [other for place, other in numbers.items()
                 if place != key and place._replace(column=key.column) == key]
        if not overlap(ends(printed), tuple(np.mean([ends(part) for part in parts], axis=0))):
            mean = sum(part.value for part in parts) / len(parts)
            yield key, (f"{about['source']} prints the mean {printed.text}; its {len(parts)} columns have the mean "
                        f"{mean:.{printed.decimals + 1}f}")


def speedups_above_tau(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A cycle takes at least one pass of the target."""
    for key, speedup in numbers.items():
        tau = numbers.get(key._replace(value_name="tau"))
        if key.value_name != "speedup" or tau is None or "tau" not in about:
            continue
        limit, bonus = ("τ + 1", 1) if about["tau"] == "accepted" else ("τ", 0)
        same_rounding = speedup.decimals == tau.decimals and speedup.value > tau.value + bonus + EPS
        if same_rounding or ends(speedup)[0] > ends(tau)[1] + bonus + EPS:
            yield key, (f"the speedup is above {limit}, but a cycle takes at least one pass of the target and yields "
                        f"{limit} tokens ({about['tau_said']}): such a speedup cannot come from accepted drafts alone")


def taus_above_length(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A cycle yields at most L accepted tokens and one of the target's own."""
    for key, tau in numbers.items():
        part = key.row.split(" / ")[about["length_at"]] if "length_at" in about else str(about.get("length"))
        if key.value_name != "tau" or not part.isdigit() or "tau" not in about:
            continue
        length = int(part)
        if ends(tau)[0] > length + 1 + EPS:
            yield key, (f"τ is above L + 1 = {length + 1}, the most that a path of L tokens and the target's own token "
                        "make: L is not the length of the draft's paths")
        elif about["tau"] == "accepted" and ends(tau)[0] > length + EPS:
            yield key, (f"τ is above L = {length}, the most if τ counts accepted draft tokens ({about['tau_said']}): "
                        "it must include the target's own token")


def ratios(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A ratio must be that of its two numbers."""
    for ratio in about.get("ratios", ()):
        for key, printed in numbers.items():
            of = numbers.get(key._replace(value_name=ratio["of"]))
            over = numbers.get(Key(key.pair, ratio.get("over_row", key.row), ratio.get("over_column", key.column),
                                   ratio["over"]))
            if key.value_name != ratio["value"] or of is None or over is None:
                continue
            scale, (low, high), (over_low, over_high) = ratio.get("scale", 1), ends(of), ends(over)
            if not overlap(ends(printed), (scale * low / over_high, scale * high / over_low)):
                yield key, (f"{about['source']} prints {printed.text}, but {of.text} / {over.text} = "
                            f"{scale * of.value / over.value:.{printed.decimals + 1}f}")


def baselines(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Tokens/s over speedup is the speed of autoregressive decoding, one number for all rows of a pair and column."""
    implied: dict[tuple[str, str], dict[Key, tuple[float, float]]] = defaultdict(dict)
    for key, speed in numbers.items():
        speedup = numbers.get(key._replace(value_name="speedup"))
        if key.value_name == "tokens_per_s" and speedup is not None:
            implied[key.pair, key.column][key] = (ends(speed)[0] / ends(speedup)[1], ends(speed)[1] / ends(speedup)[0])
    for rows in implied.values():
        shared = max((low for low, _ in rows.values()),
                     key=lambda at: sum(overlap((at, at), limits) for limits in rows.values()))
        agreeing = [limits for limits in rows.values() if overlap((shared, shared), limits)]
        most, least = max(low for low, _ in agreeing), min(high for _, high in agreeing)
        for key, (low, high) in rows.items():
            if not overlap((shared, shared), (low, high)):
                of, over = numbers[key], numbers[key._replace(value_name="speedup")]
                others = f"{len(agreeing)} other row{'s' if len(agreeing) > 1 else ''} of this column"
                yield key, (f"{of.text} tokens/s at {over.text}× imply autoregressive decoding at "
                            f"{of.value / over.value:.1f} tokens/s ({low:.1f} to {high:.1f} with rounding); {others}: "
                            f"{most:.1f} to {least:.1f}")


def shares_of_trials(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A percentage of n trials is k / n, rounded or cut off."""
    for key, printed in numbers.items():
        trials = next((n for name, n in about.get("out_of", {}).items() if name in (*key.row.split(" / "), key.column)),
                      None)
        if key.value_name not in about.get("scores", ["accuracy"]) or trials is None:
            continue
        below = math.floor(printed.value / 100 * trials)
        near = [(k, 100 * k / trials) for k in (below, below + 1)]
        if not any(ends(printed)[0] - EPS <= share < printed.value + step(printed) for _, share in near):
            fractions = " and ".join(f"{k}/{trials} = {share:.{printed.decimals + 1}f}" for k, share in near)
            yield key, f"{printed.text}% is no k/{trials} ({about['trials']}); {fractions}"


def totals(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Shares of a whole make 100%."""
    names = about.get("total", ())
    for place in dict.fromkeys(key._replace(value_name="") for key in numbers if key.value_name in names):
        keys = [place._replace(value_name=name) for name in names]
        parts = [numbers[key] for key in keys]
        if not overlap((100, 100), tuple(np.sum([ends(part) for part in parts], axis=0))):
            total = f"{sum(part.value for part in parts):.{parts[0].decimals}f}%"
            yield from ((key, f"the {len(parts)} shares add up to {total}") for key in keys)


def wilson_intervals(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Some number of trials must give the share and both ends."""
    for key, share in numbers.items():
        if key.value_name in about.get("wilson", ()):
            low, high = (numbers[key._replace(value_name=f"{key.value_name}_{end}")] for end in ("low", "high"))
            if not _is_wilson(share, low, high):
                yield key, (f"no n up to {MAX_TRIALS:,} gives {share.text}% the Wilson interval "
                            f"[{low.text}, {high.text}]")


def _is_wilson(share: Printed, low: Printed, high: Printed) -> bool:
    n = np.arange(1, MAX_TRIALS + 1)
    least = np.ceil(ends(share)[0] / 100 * n - EPS)
    for more in range(math.ceil(step(share) / 100 * MAX_TRIALS) + 1):  # every k / n that is printed as the share
        k = np.minimum(least + more, n)
        found_ends = [100 * k / n, *(100 * end for end in proportion_confint(k, n, method="wilson"))]
        fits = [(ends(printed)[0] - EPS <= end) & (end <= ends(printed)[1] + EPS)
                for printed, end in zip((share, low, high), found_ends, strict=True)]
        if np.logical_and.reduce(fits).any():
            return True
    return False


def bold_without_reason(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A bold number must be the best of its column."""
    for key, printed in numbers.items():
        if about.get("best") and printed.bold and key.value_name in HIGHER_IS_BETTER:
            rivals = {place.row: other for place, other in numbers.items() if place._replace(row=key.row) == key}
            row, best = max(rivals.items(), key=lambda rival: rival[1].value)
            if best.value > printed.value + EPS:
                yield key, f"printed bold, but {row} has {best.text}"


def repeated_rows(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Two settings whose numbers are all the same: at least one was hardly measured by itself."""
    columns: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for key, printed in numbers.items():
        columns[key.pair, key.column][key.row][key.value_name] = printed.text
    for (pair, column), rows in columns.items():
        for one, other in combinations(rows, 2):
            if len(rows[one]) > 1 and rows[one] == rows[other]:
                shown = ", ".join(rows[one].values())
                for row, rival in ((one, other), (other, one)):
                    text = f"all {len(rows[row])} numbers are those of {rival}: {shown}"
                    yield from ((Key(pair, row, column, name), text) for name in rows[row])


def parallel_models(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Rows of one model that follow another's at a nearly constant distance, over methods and tasks."""
    for one, other in combinations(sorted({key.pair for key in numbers}), 2):
        for name in sorted({key.value_name for key in numbers}):
            shared = {key: (printed, numbers[key._replace(pair=other)]) for key, printed in numbers.items()
                      if key.pair == one and key.value_name == name and key._replace(pair=other) in numbers}
            gaps = [mine.value - theirs.value for mine, theirs in shared.values()]
            span = np.ptp([mine.value for mine, _ in shared.values()]) if shared else 0.0
            if len(gaps) < FEWEST or max(gaps) - min(gaps) >= NARROW * span:
                continue
            (low, high), digits = sorted((min(gaps), max(gaps)), key=abs), next(iter(shared.values()))[0].decimals
            for pair, rival in ((one, other), (other, one)):
                text = (f"all {len(gaps)} values of {name} differ from those of {rival} by {abs(low):.{digits}f} to "
                        f"{abs(high):.{digits}f}, though they span {span:.{digits}f}")
                yield from ((key._replace(pair=pair), text) for key in shared)


def thresholds_above_bound(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A threshold that no Jensen-Shannon divergence exceeds accepts every draft token."""
    thresholds = about.get("js_thresholds", {})
    for key in numbers:
        threshold = next((at for place, at in thresholds.items() if place in (key.pair, key.row)), None)
        if threshold is not None and threshold > math.log(2) and key.row.startswith("FSD"):
            yield key, (f"T = {threshold:g} is above ln 2 = {math.log(2):.3f} nats, the largest JS divergence: "
                        "accepting where JS < T accepts every draft token, and decodes as the draft model alone")


def lengths_and_speeds(about: About, numbers: Numbers) -> Iterator[Finding]:
    """A row's accepted length and speed must be among those that another table of the paper prints for the same pair,
    task and method over its draft lengths."""
    if "lengths" not in about:
        return
    source, others = TABLES[about["lengths"]["file"]]["source"], load_published(f"{about['lengths']['file']}.csv")
    for key, printed in numbers.items():
        def of(name: str, key: Key = key) -> list[float]:
            return [other.value for place, other in others.items()
                    if (place.pair, place.row, place.value_name) == (key.pair, key.column, name)]

        if key.row != about["lengths"]["row"]:
            continue
        if key.value_name == "accept_len" and (shares := of("draft_share")):
            low, high = (100 * end / (1 + end) for end in ends(printed))
            if high < min(shares) - 0.05 or low > max(shares) + 0.05:
                yield key, (f"{printed.text} accepted tokens and one of M_T make a share of draft tokens of "
                            f"{100 * printed.value / (1 + printed.value):.1f}%; over all draft lengths it is "
                            f"{min(shares)}% to {max(shares)}% ({source})")
        speeds = of("tokens_per_s") if key.value_name == "tokens_per_s" else []
        if speeds and not min(speeds) - EPS <= printed.value <= max(speeds) + EPS:
            yield key, (f"{source} has {min(speeds)} to {max(speeds)} tokens/s for this pair, task and method over its "
                        f"draft lengths: a factor of {printed.value / max(speeds):.2f} above the fastest")


def differences(about: About, numbers: Numbers) -> Iterator[Finding]:
    """Two files of one paper must print one number alike."""
    paper = about["name"].partition("_")[0]
    elsewhere = [(other["source"], _renamed(other, place), printed) for name, other in TABLES.items()
                 if name.partition("_")[0] == paper for place, printed in load_published(f"{name}.csv").items()]
    for key, mine in numbers.items():
        for source, place, other in elsewhere:
            same = mine.value == other.value if mine.decimals == other.decimals else overlap(ends(mine), ends(other))
            if place == _renamed(about, key) and not same:
                yield key, f"{about['source']} prints {mine.text}, {source} {other.text}"


def _renamed(about: About, key: Key) -> Key:
    """The place under the names that all files share."""
    return Key(*(about.get("same", {}).get(name, name) for name in key))


def labels() -> dict[tuple[str, str, str], list[tuple[str, str, float]]]:
    """(model, method, task) -> (source, row, speedup) of each print, for labels that at least two papers print."""
    prints: dict[tuple[str, str, str], list[tuple[str, str, float]]] = defaultdict(list)
    for name, about in TABLES.items():
        for key, printed in load_published(f"{name}.csv").items() if "methods" in about else ():
            if key.value_name == "speedup" and (method := about["methods"].get(key.row)) is not None:
                place = _renamed(about, key)
                prints[place.pair, method, place.column].append((about["source"], key.row, printed.value))
    return {label: rows for label, rows in prints.items() if len({row[0].partition(",")[0] for row in rows}) > 1}
