"""Checks of a paper's numbers against their own pattern: what independent measurements would hardly print, and what
no divergence reaches. Findings as in `published_checks`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from results.reports.published import Key, Numbers, Printed
from results.reports.published_checks import Finding, PaperTable

FEWEST, NARROW = 10, 0.1
"""Rows of two models run parallel if their differences, at least `FEWEST`, spread over less than `NARROW` of what the
numbers themselves spread over. The next narrowest pair of models in the four papers has 0.22."""


def patterns(table: PaperTable, numbers: Numbers) -> list[Finding]:
    """All findings on one file."""
    checks = (repeated_rows, parallel_models, thresholds_above_bound)
    return [finding for one in checks for finding in one(table, numbers)]


def repeated_rows(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
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


def parallel_models(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """Rows of one model that follow another's at a nearly constant distance, over methods and tasks."""
    pairs = sorted({key.pair for key in numbers})
    for one, other in combinations(pairs, 2):
        for name in sorted({key.value_name for key in numbers}):
            shared = {key: (printed, numbers[key._replace(pair=other)]) for key, printed in numbers.items()
                      if key.pair == one and key.value_name == name and key._replace(pair=other) in numbers}
            gaps = [mine.value - theirs.value for mine, theirs in shared.values()]
            span = _spread([mine for mine, _ in shared.values()])
            if len(gaps) < FEWEST or max(gaps) - min(gaps) >= NARROW * span:
                continue
            (low, high), digits = sorted((min(gaps), max(gaps)), key=abs), next(iter(shared.values()))[0].decimals
            for pair, rival in ((one, other), (other, one)):
                text = (f"all {len(gaps)} values of {name} differ from those of {rival} by {abs(low):.{digits}f} to "
                        f"{abs(high):.{digits}f}, though they span {span:.{digits}f}")
                yield from ((key._replace(pair=pair), text) for key in shared)


def thresholds_above_bound(table: PaperTable, numbers: Numbers) -> Iterator[Finding]:
    """A threshold that no Jensen-Shannon divergence exceeds accepts every draft token."""
    for key in numbers:
        threshold = next((at for place, at in table.js_thresholds.items() if place in (key.pair, key.row)), None)
        if threshold is not None and threshold > math.log(2) and key.row.startswith("FSD"):
            yield key, (f"T = {threshold:g} is above ln 2 = {math.log(2):.3f} nats, the largest JS divergence: "
                        "accepting where JS < T accepts every draft token, and decodes as the draft model alone")


def _spread(printed: list[Printed]) -> float:
    values = [number.value for number in printed]
    return max(values, default=0.0) - min(values, default=0.0)
