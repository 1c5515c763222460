"""Compare two stores: which tokens changed, and which τ and speedups differ beyond their intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from results.metrics.intervals import Interval
from results.metrics.paired import by_item, relative
from results.store.cells import CellFolder, Store
from results.store.compared import Compared, compare
from results.store.differences import Differences, differences
from results.store.errors import StoreError

METRICS = ("tau", "speedup")
"""What is compared in addition to the samples; higher is better."""
OF_SETTINGS = ("drafter", "rule", "task", "decoding", "draft", "pruning", "seed", "repeat", "batch")
"""Sections that say what was measured, in addition to the pair's name and the engine's device and type."""


@dataclass(frozen=True, slots=True)
class Side:
    """One cell of a store.

    key     its folder
    config  its configuration
    """

    key: str
    config: Mapping[str, Any]

    @property
    def settings(self) -> str:
        """What it measured, without the paths of files: equal for one cell measured by two versions of the project."""
        engine = self.config.get("engine", {})
        named = {"pair": self.config.get("pair", {}).get("name"), "engine": [engine.get("device"), engine.get("dtype")]}
        return json.dumps(named | {name: _anywhere(self.config.get(name)) for name in OF_SETTINGS}, sort_keys=True)

    def models(self) -> Any:
        """The fingerprints of its models."""
        return self.config.get("fingerprints")


@dataclass(frozen=True, slots=True)
class Change:
    """A cell of both stores.

    before, after  the cell of either store
    samples        how its samples differ; None if the models differ
    ratios         metric -> (after over before, its 95% interval over the common prompts; None for too few of them)
    """

    before: Side
    after: Side
    samples: Differences | None
    ratios: Mapping[str, tuple[float, Interval | None]]

    @property
    def regressions(self) -> list[str]:
        """What is worse, in a few words each: differing samples of the same models, metrics with intervals below 1."""
        worse = [self.samples.first] if self.samples is not None and self.samples.first else []
        return worse + [f"{name} is lower: × {ratio:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
                        for name, (ratio, interval) in self.ratios.items() if interval is not None and interval[1] < 1]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two stores.

    changes     of the cells that both hold
    only        keys of the cells that only one of them holds, (before, after)
    unreadable  cells that cannot be read in either store, one line each
    """

    changes: list[Change]
    only: tuple[list[str], list[str]]
    unreadable: list[str]


def compare_stores(before: Store, after: Store) -> Comparison:
    """Compare the cells that have the same name in both stores, or else the same settings, since versions of the
    project may name cells differently. Autoregressive cells are compared like all others."""
    unreadable: list[str] = []
    old, new = (_sides(store, unreadable) for store in (before, after))
    by_settings: dict[str, list[Side]] = {}
    for side in new.values():
        if side.key not in old:
            by_settings.setdefault(side.settings, []).append(side)
    pairs = [(side, new[key]) for key, side in old.items() if key in new]
    for key, side in old.items():
        if key not in new and (same := by_settings.get(side.settings)):
            pairs.append((side, same.pop()))
    matched = {one.key for one, _ in pairs}, {two.key for _, two in pairs}
    only = [key for key in old if key not in matched[0]], [key for key in new if key not in matched[1]]
    changes = []
    for one, two in pairs:
        try:
            changes.append(_change(one, before, two, after))
        except StoreError as error:  # of its baseline, which is also listed itself
            unreadable.append(f"{two.key}: {error}")
    return Comparison(changes, only, unreadable)


def _sides(store: Store, unreadable: list[str]) -> dict[str, Side]:
    sides = {}
    for content in store.contents(cell.key for cell in store.cells()):
        if content.entry.damage:
            unreadable.append(content.entry.damage)
        else:
            sides[content.entry.key] = Side(content.entry.key, content.config)
    return sides


def _change(one: Side, before: Store, two: Side, after: Store) -> Change:
    cells, stores = (before.cell(one.key), after.cell(two.key)), (before, after)
    same_models = one.models() == two.models()
    samples = differences(cells[0].samples(), cells[1].samples()) if same_models else None
    pairs = [_compared(cell, side, store) for cell, side, store in zip(cells, (one, two), stores, strict=True)]
    ratios = {}
    for name in METRICS:
        ratio, interval = relative(name, "over", by_item(name, pairs[1]), by_item(name, pairs[0]))
        if ratio is not None:
            ratios[name] = ratio, interval
    return Change(one, two, samples, ratios)


def _compared(cell: CellFolder, side: Side, store: Store) -> list[Compared]:
    baseline = store.cell(str(side.config.get("baseline", side.key)))
    records = cell.samples()
    baselines = records if baseline.key == cell.key else baseline.samples()
    rows = compare(records, {record.id: record for record in baselines}, {row.id: row for row in cell.timed()})
    return [row for row in rows if isinstance(row, Compared)]


def _anywhere(value: Any) -> Any:
    """Plain data with the names of files in place of absolute paths."""
    if isinstance(value, str):
        return PurePath(value).name if value.startswith("/") else value
    if isinstance(value, Mapping):
        return {name: _anywhere(one) for name, one in value.items()}
    return [_anywhere(one) for one in value] if isinstance(value, list) else value
