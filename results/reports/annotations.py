"""What a reader must know of single numbers of a table: censored lengths, verdicts, sessions that
do not compare."""

from __future__ import annotations

from results.metrics.answers import CENSORED_ABOVE, censoring
from results.metrics.catalog import METRICS
from results.metrics.delta import LEAST_FREEDOM
from results.metrics.summary import Summary
from results.reports.columns import Column
from results.reports.grid import (
    Conditions,
    Grid,
    Outcome,
    conditions,
    counted,
    drifts,
    outcome,
)
from results.reports.spec import Coords, TableSpec
from results.store.sample import TimingSession

ABSOLUTE = ("tok/s", "ms")
"""Units of the clock: such numbers of different sessions do not compare."""
CENSORED = f"censored: over {CENSORED_ABOVE:.0%} of the lossless answers end at the length limit"


EVENTS = {
    "vacuous_bound": (
        "the calibrated tolerance is at least ln 2, the largest possible divergence: the "
        "certified bound is vacuous"
    ),
}
"""Events that a rule records while decoding and a reader must know of: name -> note at the cell."""


class Note(str):
    """A footnote; `together`: what several of its kind say in one, empty where each stands for
    itself; `short`: what it says of its row behind that."""

    together: str
    short: str

    def __new__(cls, text: str, together: str = "", short: str = "") -> Note:
        note = super().__new__(cls, text)
        note.together, note.short = together, short
        return note


class Annotator:
    """The verdicts and footnotes of single numbers.

    sessions   all measuring sessions of the table
    drifts     baseline cell -> relative drift of its speed within a session, where it is large
    """

    def __init__(self, spec: TableSpec, grid: Grid) -> None:
        self.sessions = sorted({session for each in conditions(grid) for session in each.sessions})
        self.drifts = drifts(
            [
                (result.conditions, result.summary.baseline_tokens_per_s)
                for result in grid.values()
                if result.conditions is not None and result.summary is not None
            ]
        )

    def verdict(self, column: Column, summary: Summary | None) -> str:
        """In words; empty for metrics that decide nothing."""
        judged = summary.judged if summary is not None and column.metric.decides else None
        return "" if judged is None else judged.verdict.text

    def notes(self, column: Column, result: Outcome) -> list[str]:
        """The footnotes of a measured number."""
        metric, summary = column.metric, result.summary
        if summary is None:
            return []
        notes: list[str] = (
            [Note(censoring(summary.baseline_truncated_share), CENSORED)] if metric.censored else []
        )
        if column.measure.unit in ABSOLUTE and result.conditions is not None:
            notes.append(self._session(result.conditions))
        if metric.clock:
            notes += [
                self._threads(result.conditions),
                self._drift(result.conditions),
                shared(result.conditions),
            ]
            if (
                metric.estimator.clocked
                and 0 < summary.timed <= LEAST_FREEDOM
                and not summary.is_baseline
            ):
                notes.append(
                    f"timed too few for an interval: give at least timed={LEAST_FREEDOM + 1}"
                )
        if metric.judged and summary.judge is not None:
            notes.append(summary.judge.told)
        notes += disagreements(summary, metric.name)
        if metric.decides and summary.judged is not None and summary.judged.between is not None:
            notes.append(summary.judged.between.text(summary.judged.sessions))
        return [text for text in notes if text]

    def _session(self, conditions: Conditions) -> str:
        """Which session timed a cell, where the table mixes several."""
        if len(self.sessions) < 2:
            return ""
        named = " and ".join(map(self._named, conditions.sessions))
        return Note(
            f"timed in session {named}: speeds of different sessions do not compare",
            "timed in several sessions, whose speeds do not compare",
        )

    def _named(self, session: TimingSession) -> str:
        return f"{self.sessions.index(session) + 1} ({session.text})"

    def _threads(self, conditions: Conditions | None) -> str:
        """On how many CPU threads a cell was timed, where other cells of the table had another
        number."""
        threads = (
            {session.threads for session in conditions.sessions if session.threads}
            if conditions is not None
            else set()
        )
        others = {session.threads for session in self.sessions if session.threads} - threads
        if not threads or not others:
            return ""
        return (
            f"timed on {counted(threads)}, other cells on {counted(others)}: neither speeds nor "
            "speedups compare"
        )

    def _drift(self, conditions: Conditions | None) -> str:
        change = None if conditions is None else self.drifts.get(conditions.baseline)
        if change is None:
            return ""
        return f"the speed of the baseline drifted by {change:.0%} within the session"


def rivals(spec: TableSpec, grid: Grid) -> dict[Coords, dict[Coords, Summary]]:
    """The measured rows of one model, task and temperature together, by coordinates, without
    baselines; the key holds the labels that vary, and the temperature where it does."""
    outcomes = {point.coords: outcome(grid, point.coords) for point in spec.points()}
    temperatures = {
        coords: f"T = {result.conditions.temperature:g}"
        for coords, result in outcomes.items()
        if result.conditions
    }
    groups: dict[Coords, dict[Coords, Summary]] = {}
    for coords, result in outcomes.items():
        labels, entries = spec.labels(coords), spec.entries(coords)
        if result.summary is None or any(
            entry.baseline or entry.frontier for entry in entries.values()
        ):
            continue
        key = [
            label
            for axis, label in labels.items()
            if axis != spec.rows[-1] and len(spec.axes[axis]) > 1
        ]
        if coords in temperatures and len({*temperatures.values()}) > 1:
            key.append(temperatures[coords])
        groups.setdefault(tuple(key), {})[coords] = result.summary
    return groups


def disagreements(summary: Summary, name: str) -> list[str]:
    """Where a directly timed speed and the modelled one that it checks do not meet, and where its
    prompts are unlike the rest."""
    model = METRICS[name].checks
    if not model:
        return []
    notes, all_tau = [], summary.tau_ci95
    direct, modelled = summary.interval(name), summary.interval(model)
    if direct and modelled and (direct[1] < modelled[0] or modelled[1] < direct[0]):
        notes.append(
            f"does not meet the modelled speed over all {summary.n} prompts, "
            f"{summary.value(model):.2f}× [{modelled[0]:.2f}, {modelled[1]:.2f}]"
        )
    if (
        summary.timed_tau is not None
        and all_tau
        and not all_tau[0] <= summary.timed_tau <= all_tau[1]
    ):
        notes.append(
            Note(
                f"its {summary.timed} timed prompts have τ {summary.timed_tau:.2f}, outside the "
                f"interval of all {summary.n}, [{all_tau[0]:.2f}, {all_tau[1]:.2f}]",
                f"the τ of its {summary.timed} timed prompts is outside the 95% interval of all "
                f"{summary.n}",
            )
        )
    return notes


def shared(conditions: Conditions | None) -> str:
    """That workers of a launcher shared the machine with the timed pass."""
    beside = conditions is not None and any(session.shared for session in conditions.sessions)
    return "timed while other workers may have run on the machine" if beside else ""


def remarks(summary: Summary, with_speed: bool) -> list[str]:
    """What a reader must know of a measured cell, `with_speed` of its speedup too."""
    n, failed = summary.n, summary.failed
    texts = [f"{failed} of {n + failed} prompts failed and are left out"] if failed else []
    texts += [text for event, text in EVENTS.items() if summary.events.get(event)]
    if with_speed and summary.repeatable is not None and summary.repeatable < 1:
        said = "timed prompts have other tokens than in the quality pass"
        texts.append(
            Note(f"{1 - summary.repeatable:.0%} of {summary.timed} {said}", f"some {said}")
        )
    return texts
