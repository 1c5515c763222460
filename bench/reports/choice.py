"""Rows that choose among settings: which cell each of their prompts is reported from, and what the
row then shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from bench.reports.spans import spans
from bench.run.related_cells import repeats_of
from methods.sampling import Sampling
from results.metrics.answer_speed import modelled_speeds
from results.metrics.catalog import SPANS
from results.metrics.delta import Estimate
from results.metrics.distortion import variation
from results.metrics.frontier import Lossless, beside_lossless, distance_of
from results.metrics.summary import diversity, summarise
from results.metrics.trace_metrics import trace_metrics
from results.metrics.verdict import Answered, Chosen, answered, choose, reported
from results.reports.annotations import Note
from results.reports.axes import AS_GIVEN
from results.reports.grid import Outcome
from results.reports.spec import TableSpec
from results.store.sample import Compared, timing_order
from results.store.traces import TraceFolder

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Decoding
    from bench.run.session import Session
    from results.metrics.metric import Sums
    from results.reports.choice import Choice
    from results.reports.grid import Grid
    from results.reports.spec import Coords, FigureSpec
    from results.store.sample import FailedSample, Sample

CONTROLS = {"random", "tilted"}
"""Rules that are shown beside those that are compared."""
JUDGED_AT = 1.0
"""The temperature of the target that rows at temperature 0 are judged by."""
TAKEN = "Settings taken (two where each half of the prompts chose another)"


def chosen_rows(
    spec: TableSpec | FigureSpec, cells: Mapping[Coords, Cell], grid: Grid, session: Session
) -> dict[Coords, Outcome]:
    """The outcome of each row of a report whose rows choose; empty for any other report."""
    choice = spec.choice if isinstance(spec, TableSpec) else None
    if not isinstance(spec, TableSpec) or choice is None:
        return {}
    points: dict[Coords, dict[str, Coords]] = {}
    outcomes = {}
    for coords in grid:
        place, setting = split(spec, choice, coords)
        if spec.altered(coords):  # there is nothing to choose
            outcomes[place] = grid[coords]
            continue
        points.setdefault(place, {})[setting] = coords
    rows = {
        coords: ChosenRow(spec, choice, settings, cells, grid, session)
        for coords, settings in points.items()
    }
    for coords, row in rows.items():
        row.asked = spec.chosen().judged_at(coords)
        is_frontier = spec.chosen().is_frontier(coords)
        label = choice.lossless if is_frontier else compared_with(choice, row)
        best = rows.get(reference(spec, coords, label))
        frontier = frontier_of(spec, choice, coords, rows) if choice.frontier else []
        outcomes[coords] = row.outcome(best, frontier)
    return outcomes


def frontier_of(
    spec: TableSpec, choice: Choice, coords: Coords, rows: Mapping[Coords, ChosenRow]
) -> list[ChosenRow]:
    """The lossless rows, one at each temperature, that of the temperature asked for first; empty
    where one is missing or was not measured."""
    labels = [entry.label for axis in spec.axes.values() for entry in axis if entry.frontier]
    labels = [choice.lossless, *dict.fromkeys(labels)]
    lossless = [rows.get(reference(spec, coords, label)) for label in labels]
    measured = [row for row in lossless if row is not None and row.measured]
    return measured if len(measured) == len(labels) else []


def split(spec: TableSpec, choice: Choice, coords: Coords) -> tuple[Coords, str]:
    """The coordinates of a point's row, and its setting in words: `block, K = 10`; "" where there
    is none."""
    labels = spec.labels(coords)
    row = tuple(label for axis, label in labels.items() if axis not in choice.axes)
    setting = [labels[axis] for axis in choice.axes if labels[axis] != AS_GIVEN]
    return row, ", ".join(setting)


def compared_with(choice: Choice, row: ChosenRow) -> str:
    """Label of the row that a row is compared with."""
    return choice.lossless_greedy if row.is_greedy and choice.lossless_greedy else choice.lossless


def reference(spec: TableSpec, coords: Coords, label: str) -> Coords:
    """The coordinates of a row with the label of one of its axes replaced: the axis that has the
    label."""
    axes = spec.chosen().axes
    return tuple(
        label if axis in spec.rows and any(entry.label == label for entry in axes[axis]) else before
        for axis, before in zip(axes, coords, strict=True)
    )


def drafting(cell: Cell, target: Decoding) -> str:
    """Name of the lossless cell of one decoding that drafts as this one does."""
    return cell.replace(timed=0, repeat=0, decoding=target).lossless().unread_name


@dataclass
class ChosenRow:
    """One row and its settings.

    settings   setting in words -> coordinates of its point.
    cells      coordinates -> cell, of all points of the report.
    grid       the outcomes of all points.
    asked      the temperature that the row is judged at in place of its own.
    """

    spec: TableSpec
    choice: Choice
    settings: Mapping[str, Coords]
    cells: Mapping[Coords, Cell]
    grid: Grid
    session: Session
    asked: float | None = None

    @cached_property
    def measured(self) -> dict[str, Cell]:
        """The cells of the settings that were measured."""
        return {
            name: self.cells[coords]
            for name, coords in self.settings.items()
            if coords in self.cells and self.grid[coords].summary is not None
        }

    @cached_property
    def records(self) -> dict[str, list[Compared | FailedSample]]:
        return {name: self.session.folder(cell).compared() for name, cell in self.measured.items()}

    @cached_property
    def chosen(self) -> list[Chosen]:
        """Raises ValueError where nothing can be chosen."""
        ids = self.session.folder(next(iter(self.measured.values()))).ids
        return choose(self.records, timing_order(ids))

    @cached_property
    def row(self) -> Answered | None:
        """The reported prompts; None where nothing was measured or could be chosen."""
        try:
            chosen = self.chosen if self.measured else []
        except ValueError:
            return None
        return answered(self.records, chosen)

    @property
    def is_lossless(self) -> bool:
        return all(cell.is_lossless for cell in self.measured.values())

    @property
    def temperature(self) -> float:
        return next(iter(self.measured.values())).decoding.temperature

    @property
    def is_greedy(self) -> bool:
        return all(cell.decoding.sampling.greedy for cell in self.measured.values())

    @property
    def is_control(self) -> bool:
        """Whether the row is none of the rules that are compared: lossless, random, or the most
        that a rule can keep."""
        names = {cell.rule.name for cell in self.measured.values()}
        return self.is_lossless or names <= CONTROLS

    def drafts(self, target: Decoding) -> set[str]:
        """Names of the cells that draft as the settings of this row do, all of one decoding."""
        return {drafting(cell, target) for cell in self.measured.values()}

    def lossless(self, target: Decoding, beside: ChosenRow) -> list[Lossless]:
        """The settings of this lossless row, their distance that from the target of another one;
        empty where it is not known."""
        pairs = {
            name: [record for record in records if isinstance(record, Compared)]
            for name, records in self.records.items()
        }
        distance = self.distance(target, [pair for of_cell in pairs.values() for pair in of_cell])
        if distance is None:
            return []
        drafts = beside.drafts(target)
        return [
            Lossless(
                name, self.temperature, pairs[name], distance, drafting(cell, target) in drafts
            )
            for name, cell in self.measured.items()
        ]

    def distance(self, target: Decoding, pairs: Sequence[Compared]) -> Estimate | None:
        """Of these prompts of the row, from the target so decoded."""
        if all(cell.decoding == target for cell in self.measured.values()):
            return Estimate(0.0, 0.0, 1.0, log=False) if self.is_lossless else distance_of(pairs)
        is_whole = target.sampling == Sampling(target.temperature)
        return distance_of(pairs, target.temperature) if target.temperature and is_whole else None

    def variation(self, target: Decoding, pairs: Sequence[Compared]) -> dict[str, Sums]:
        """TV of these prompts of the row from the target so decoded, and the mass outside where
        that is truncated."""
        is_whole = target.sampling == Sampling(target.temperature)
        measures: dict[str, Literal["tv", "tv_at_1", "outside"]] = {}
        if all(cell.decoding == target for cell in self.measured.values()):
            measures["equal_d_tv"] = "tv"
            if not is_whole:
                measures["equal_d_outside"] = "outside"
        elif is_whole and target.temperature == 1:
            measures["equal_d_tv"] = "tv_at_1"
        return {name: variation(pairs, measure) for name, measure in measures.items()}

    def outcome(self, best: ChosenRow | None, frontier: Sequence[ChosenRow]) -> Outcome:
        """The row beside the one that it is compared with, and beside the frontier."""
        if not self.measured:
            return next(self.grid[coords] for coords in self.settings.values())
        try:
            chosen = self.chosen
        except ValueError as error:
            return Outcome.missing(str(error))
        outcome = self._single(chosen) or self._mixed(chosen)
        assert outcome.summary is not None
        values: dict[str, Any] = {}
        if best is not None and best.measured and self.row is not None:
            values = self._beside(self.row, best, frontier)
        return replace(
            outcome, summary=outcome.summary.with_values(**values), notes=self._notes(chosen)
        )

    def _beside(
        self, row: Answered, best: ChosenRow, frontier: Sequence[ChosenRow]
    ) -> dict[str, Any]:
        """The row beside lossless decoding, and what its verdict needs. At temperature 0 the target
        is that at 1; without a frontier, greedy decoding is all that it is compared with there, and
        other rows have no verdict."""
        target = next(iter(best.measured.values())).decoding
        if target.sampling.greedy:
            target = target.model_copy(update={"temperature": JUDGED_AT})
        lines = frontier or ([best] if self.is_greedy and best.is_greedy else [])
        row = replace(row, distortion=self.distance(target, row.pairs))
        compared = [line.lossless(target, self) for line in lines]
        values: dict[str, Any] = dict(self.variation(target, row.pairs))
        if all(compared):
            lossless = [setting for settings in compared for setting in settings]
            between, control = self.session.between, self.is_control
            values |= beside_lossless(row, self.temperature, lossless, between, control)
        if self.is_lossless and self.asked is None:
            values.pop("judged", None)  # there is nothing to decide
        return values

    def _single(self, chosen: Sequence[Chosen]) -> Outcome | None:
        """The outcome of the cell that holds all prompts of the row; None where none does."""
        if len({fold.setting for fold in chosen}) > 1:
            return None
        return self.grid[self.settings[chosen[0].setting]]

    def _mixed(self, chosen: Sequence[Chosen]) -> Outcome:
        """The prompts of several cells as one row."""
        cells = {fold.setting: self.measured[fold.setting] for fold in chosen}
        task, row = next(iter(cells.values())).load_task(), self.row
        assert row is not None  # `chosen` was made
        summary = summarise(
            reported(self.records, chosen), metric=task.metric, proportion=task.proportion
        )
        if row.settings:
            summary = summary.with_values(**modelled_speeds(row.pairs, row.settings))
        summary = summary.with_values(**self._diversity(chosen))
        if self.spec.trace:
            traces = [
                TraceFolder(self.session.folder(cells[fold.setting]), fold.reported)
                for fold in chosen
            ]
            tokens = {pair.id: len(pair.sample.output_ids) for pair in row.pairs}
            temperature = next(iter(cells.values())).decoding.temperature
            summary = summary.with_values(**trace_metrics(traces, tokens, temperature))
        if SPANS & {*self.spec.metrics()}:
            samples = [pair.sample for pair in row.pairs]
            summary = summary.with_values(**spans(next(iter(cells.values())), samples))
        of_cells = [self.grid[self.settings[name]].conditions for name in cells]
        stated = [conditions for conditions in of_cells if conditions is not None]
        if not stated:
            return Outcome.measured(summary)
        sessions = {session for conditions in stated for session in conditions.sessions}
        names = dict.fromkeys(conditions.cell for conditions in stated)
        conditions = replace(stated[0], sessions=tuple(sorted(sessions)), cell=" + ".join(names))
        return Outcome.measured(summary, conditions=conditions)

    def _diversity(self, chosen: Sequence[Chosen]) -> dict[str, Any]:
        """What the repeats show that all cells of the row have."""
        repeats = [repeats_of(self.measured[fold.setting], self.session.store) for fold in chosen]
        fewest = min(map(len, repeats))
        samples: list[Sample] = []
        for fold, runs in zip(chosen, repeats, strict=True):
            for run in runs[:fewest]:
                samples += [sample for sample in run if sample.id in fold.reported]
        return diversity(samples)

    def _notes(self, chosen: Sequence[Chosen]) -> tuple[str, ...]:
        """Which setting the row shows, chosen on how many prompts."""
        if len(self.settings) < 2:
            return ()
        tried, missing = len(self.settings), len(self.settings) - len(self.measured)
        lacking = f"; {missing} of them not measured" if missing else ""
        taken = list(dict.fromkeys(fold.setting for fold in chosen))
        if len(chosen) > 1 and len(taken) == 1:
            sizes = " and ".join(str(fold.selection) for fold in chosen)
            text = f"{taken[0]}: of {tried} settings, by either half of the prompts ({sizes})"
        else:
            parts = [
                f"{fold.setting}, on {len(fold.reported)} prompts, selected by {fold.selection} "
                "others"
                for fold in chosen
            ]
            text = f"{'; '.join(parts)}; of {tried} settings"
        return (Note(text + lacking, TAKEN, " or ".join(taken)),)
