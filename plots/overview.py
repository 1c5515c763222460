"""The figures that a page opens with: what gains in τ consist of, and the speed of an answer against its quality, every
cell, with the best lossless one marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.gains import stacked
from plots.names import name_series
from plots.render import save
from plots.rules import looks_of
from plots.style import INK, SOFT, Look, panel_grid, style
from results.metrics.answer_speed import modelled_speeds
from results.metrics.catalog import metric
from results.metrics.intervals import Interval
from results.metrics.metric import Metric
from results.metrics.pairwise import shows_loss
from results.metrics.summary import Summary
from results.reports.opening import SPEEDS, best_lossless, measured, speed
from results.reports.splits import Split
from results.reports.viewer.groups import Group, Viewed

NAME, OF_SPLITS = "overview", "opening"
PANELS = 6
"""The groups with most timed cells get a panel."""
LEGEND_INCHES = 2.0
LETTERS = 42
"""Of a line above a panel, as many as fit its width."""
SHORT = 8
"""Letters of the settings that stand at a mark; longer ones would cover other marks."""
LABELS = {"nll": "NLL under the target (nats a token)"}
"""Titles of axes that the metric's own label is too short for."""
BASELINES = {"accuracy": "baseline_accuracy", "nll": "baseline_nll"}
"""What plain decoding has of a measure of quality, in the summary of every cell."""
Point = tuple[float, Interval | None]


def render_splits(splits: Sequence[Split], out_dir: str | Path) -> list[Path]:
    """Write opening.png, .pdf and .svg into `out_dir` and return their paths; nothing without a split."""
    if not splits:
        return []
    beside = list(dict.fromkeys(name for split in splits for name in split.beside))
    with style(salt=OF_SPLITS):
        return save(stacked({split.title: split.cells for split in splits}, beside), Path(out_dir) / OF_SPLITS)


def render_overview(groups: Sequence[Group], out_dir: str | Path) -> list[Path]:
    """Write overview.png, .pdf and .svg into `out_dir` and return their paths; nothing where no group has two timed
    cells."""
    shown = sorted((group for group in groups if _timed(group) > 1), key=lambda group: -_timed(group))[:PANELS]
    if not shown:
        return []
    with style(salt=NAME):
        return save(draw(shown), Path(out_dir) / NAME)


def draw(groups: Sequence[Group]) -> Figure:
    """One panel per group; a method has the same mark in all of them."""
    figure, axes = panel_grid(len(groups), columns=2)
    figure.set_figwidth(figure.get_figwidth() + LEGEND_INCHES)
    looks = looks_of({cell.label: cell.rule for group in groups for cell, summary in measured(group)
                      if not cell.baseline and speed(summary)})
    for ax, group in zip(axes, groups, strict=True):
        _panel(ax, group, looks)
    name_series(figure, axes, loc="outside right upper")
    return figure


def _timed(group: Group) -> int:
    return sum(speed(summary) is not None for _, summary in measured(group))


def _panel(ax: Axes, group: Group, looks: dict[str, Look]) -> None:
    cells = [(cell, summary) for cell, summary in measured(group) if speed(summary) is not None]
    quality = metric(_quality(group, [summary for _, summary in cells]))
    ax.set_title("\n".join([group.task, *wrap(group.about.replace("≤ ", "≤\N{NO-BREAK SPACE}"), LETTERS)]), fontsize=9)
    ax.set_xlabel(metric(SPEEDS[1]).axis)
    ax.set_ylabel(LABELS.get(quality.name, quality.axis))
    best = best_lossless(group)
    speeds = {} if best is None else modelled_speeds(best.pairs, best.settings)
    if (value := speeds.get(SPEEDS[0])) is not None:
        _line(ax, (value, speeds[f"{SPEEDS[0]}_ci95"]), upright=True)
    of_baseline = BASELINES.get(quality.name)
    if of_baseline is not None and (level := _point(cells[0][1], metric(of_baseline))) is not None:
        _line(ax, level, upright=False)
    alike = Counter(cell.label for cell, _ in cells)
    for number, (cell, summary) in enumerate(cells):
        x, y = _speed(summary), _point(summary, quality)
        if y is None:
            continue
        shape = looks.get(cell.label, Look(INK, "*", "-", ""))
        ax.errorbar(x[0], y[0], xerr=_arms(x), yerr=_arms(y), color=shape.colour, marker=shape.marker, markersize=6.5,
                    markerfacecolor="none" if cell.lossless else shape.colour, linestyle="none", elinewidth=0.8,
                    label="target alone" if cell.baseline else cell.label)
        words = short_settings(cell)
        if alike[cell.label] > 1 and len(words) <= SHORT:
            ax.annotate(words, (x[0], y[0]), xytext=(4, 4 if number % 2 else -11), textcoords="offset points",
                        fontsize=8, color=shape.colour)


def short_settings(cell: Viewed) -> str:
    """What tells a cell from others of its method, short: `0.9` where it is one value, else `K=7, theta=0.9`."""
    given = [word.partition(".")[2] or word for word in cell.method.split(" ")[1:]]
    return given[0].rpartition("=")[2] if len(given) == 1 else ", ".join(given).replace("length=", "K=")


def _quality(group: Group, summaries: Sequence[Summary]) -> str:
    """The metric that stands for quality: accuracy, where plain decoding gets enough right for a loss to show; else
    NLL, of which plain decoding's is the right one; else the share of outputs that are plain decoding's."""
    right = [sample.score for cell in group.cells if cell.baseline for sample in cell.samples
             if sample.score is not None]
    if all(summary.accuracy is not None for summary in summaries) and shows_loss(right):
        return "accuracy"
    return "nll" if all(summary.nll is not None for summary in summaries) else "precision"


def _point(summary: Summary, quality: Metric) -> Point | None:
    value, interval = summary.value(quality.name), summary.interval(quality.name)
    if value is None:
        return None
    return quality.shown(value), None if interval is None else (quality.shown(interval[0]), quality.shown(interval[1]))


def _speed(summary: Summary) -> Point:
    found = speed(summary)
    return (1.0, None) if found is None else (found[1], found[2])


def _arms(point: Point) -> list[list[float]] | None:
    value, interval = point
    return None if interval is None else [[max(0.0, value - interval[0])], [max(0.0, interval[1] - value)]]


def _line(ax: Axes, point: Point, *, upright: bool) -> None:
    """A line at a value, with its interval as a band."""
    value, interval = point
    line, band = (ax.axvline, ax.axvspan) if upright else (ax.axhline, ax.axhspan)
    line(value, color=SOFT, lw=1, ls=(0, (4, 2)), zorder=1.2)
    if interval is not None:
        band(*interval, color=SOFT, alpha=0.12, lw=0, zorder=1.1)
