"""Numbers of one label in several tables: of one paper, which must agree, and of several papers, which need not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from results.reports.published import Key, Numbers, load_published
from results.reports.published_checks import EPS, PaperTable

WITHIN = ("One label, several papers: hardware, trees and temperature differ, so do the speedups. Compare printed "
          "numbers only within one paper.")


@dataclass(frozen=True, slots=True)
class Label:
    """A method on a model and task, as several papers print it.

    prints    (source, row in its table, speedup, τ or None) of each.
    """

    model: str
    method: str
    task: str
    prints: tuple[tuple[str, str, float, float | None], ...]

    @property
    def ratio(self) -> float:
        """The largest printed speedup over the smallest."""
        speedups = [speedup for _, _, speedup, _ in self.prints]
        return max(speedups) / min(speedups)


def labels(tables: Mapping[str, PaperTable]) -> list[Label]:
    """The labels that tables of at least two papers print a speedup of, by model, method and task."""
    prints: dict[tuple[str, str, str], list[tuple[str, str, float, float | None]]] = defaultdict(list)
    for file, table in tables.items():
        numbers = load_published(f"{file}.csv") if table.methods else {}
        for key, printed in numbers.items():
            if key.value_name == "speedup" and (method := table.methods.get(key.row)) is not None:
                pair, column = (table.same.get(name, name) for name in (key.pair, key.column))
                tau = numbers.get(key._replace(value_name="tau"))
                prints[pair, method, column].append(
                    (table.source, key.row, printed.value, None if tau is None else tau.value))
    return [Label(*place, tuple(found)) for place, found in sorted(prints.items())
            if len({source.partition(",")[0] for source, *_ in found}) > 1]


def lengths_and_speeds(tables: Mapping[str, PaperTable]) -> Iterator[tuple[str, Key, str]]:
    """(file, place, finding) where a row's accepted length and speed are not among those that another table of the
    paper prints for the same pair, task and method over its draft lengths."""
    for file, table in tables.items():
        if table.lengths is None:
            continue
        numbers, others = load_published(f"{file}.csv"), load_published(f"{table.lengths.file}.csv")
        for key, printed in numbers.items():
            if key.row != table.lengths.row:
                continue
            if key.value_name == "accept_len" and (text := _share(key, printed.ends, printed.text, others)):
                yield file, key, f"{text} ({tables[table.lengths.file].source})"
            speeds = _of(key, "tokens_per_s", others) if key.value_name == "tokens_per_s" else []
            if speeds and not min(speeds) - EPS <= printed.value <= max(speeds) + EPS:
                source = tables[table.lengths.file].source
                yield file, key, (f"{source} has {min(speeds)} to {max(speeds)} tokens/s for this pair, task and "
                                  "method over its draft lengths: a factor of "
                                  f"{printed.value / max(speeds):.2f} above the fastest")


def _of(key: Key, name: str, others: Numbers) -> list[float]:
    return [other.value for place, other in others.items()
            if (place.pair, place.row, place.value_name) == (key.pair, key.column, name)]


def _share(key: Key, ends: tuple[float, float], text: str, others: Numbers) -> str:
    """That a cycle with this accepted length and one token of the target's own has a smaller or larger share of draft
    tokens than every draft length there."""
    shares = _of(key, "draft_share", others)
    low, high = (100 * end / (1 + end) for end in ends)
    if not shares or (high >= min(shares) - 0.05 and low <= max(shares) + 0.05):
        return ""
    value = float(text)
    return (f"{text} accepted tokens and one of M_T make a share of draft tokens of {100 * value / (1 + value):.1f}%; "
            f"over all draft lengths it is {min(shares)}% to {max(shares)}%")
