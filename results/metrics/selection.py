"""The setting of a row: the fastest on selection prompts, measured on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from results.metrics.answer_speed import Floats, answer_speedup, equal_length_speedup, modelled_value
from results.metrics.verdict import Answered
from results.store.sample import Compared, FailedSample

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


def choose(candidates: Mapping[str, Records], ids: Sequence[str], prompts: int | None = None,
           lossless: bool = False) -> list[Chosen]:
    """Which setting each part of the prompts is reported with.

    candidates   setting -> its prompts beside their baseline.
    ids          all prompts in the order in which they are timed (`results.store.sample.timing_order`).
    prompts      None: the items take turns in two halves, each of which selects for the other; else so many items,
                 spread evenly, select for the others.
    lossless     the settings have answers of one distribution.

    The fastest has the largest `answer_speedup_modelled` on the selection prompts, lossless ones at equal length; of
    equals the first. Samples of one item stay together. Raises ValueError, one line, where no prompt is left to report,
    and where no setting has a speed on its selection prompts."""
    items = {record.id: record.sample.item for records in candidates.values() for record in records
             if isinstance(record, Compared)}
    part = _parts(list(dict.fromkeys(items.get(name, name) for name in ids)), prompts)
    of_part = [tuple(name for name in ids if part[items.get(name, name)] == i) for i in (0, 1)]
    if not of_part[1]:
        raise ValueError(f"{prompts or 1} of {len(of_part[0])} prompts select, so none is left to report: give more "
                         "prompts (n=) or fewer to the selection (report.choice.prompts=)")
    reports = [(1, 0)] if prompts is not None else [(0, 1), (1, 0)]  # (reported, selecting)
    statistic = equal_length_speedup if lossless else answer_speedup
    return [_chosen(candidates, of_part[reported], frozenset(of_part[selecting]), statistic)
            for reported, selecting in reports]


def reported(candidates: Mapping[str, Records], chosen: Sequence[Chosen]) -> list[Compared | FailedSample]:
    """The reported prompts, each from the cell of its setting, sorted by id."""
    by_id = [(one, {record.id: record for record in candidates[one.setting]}) for one in chosen]
    records = [records[name] for one, records in by_id for name in one.reported if name in records]
    return sorted(records, key=lambda record: record.id)


def answered(candidates: Mapping[str, Records], chosen: Sequence[Chosen]) -> Answered:
    """The reported prompts that did not fail, as a row."""
    pairs = [record for record in reported(candidates, chosen) if isinstance(record, Compared)]
    several = len({one.setting for one in chosen}) > 1
    return Answered(pairs, {name: one.setting for one in chosen for name in one.reported} if several else {})


def _parts(items: Sequence[str], prompts: int | None) -> dict[str, int]:
    """Item -> 0 or 1. With `prompts`, so many items, spread evenly, are in part 0."""
    if prompts is None:
        return {item: i % 2 for i, item in enumerate(items)}
    share = min(prompts, len(items)) / max(1, len(items))
    return {item: 0 if int((i + 1) * share + 1e-9) > int(i * share + 1e-9) else 1 for i, item in enumerate(items)}


def _chosen(candidates: Mapping[str, Records], to_report: tuple[str, ...], selecting: frozenset[str],
            statistic: Callable[[Floats], Floats]) -> Chosen:
    if len(candidates) == 1:
        return Chosen(next(iter(candidates)), to_report, 0)
    speeds = {name: speed for name, records in candidates.items() if (speed := modelled_value(
        [record for record in records if isinstance(record, Compared) and record.id in selecting], statistic))
        is not None}
    if not speeds:
        raise ValueError(f"no setting has a speed on the {len(selecting)} prompts that select: give at least timed=2, "
                         "so that prompts of either part are timed")
    return Chosen(max(speeds, key=lambda name: speeds[name]), to_report, len(selecting))
