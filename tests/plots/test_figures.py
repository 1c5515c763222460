"""Figures: what is drawn is what was measured, readable without colour, and the same bytes every
time."""

import csv
import io
import os
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from plots import labels
from plots.render import data_of, render
from plots.rules import COLOURS as OF_RULES
from plots.rules import MARKERS
from plots.style import COLOURS, look, style
from results.reports.formats import figure_csv
from results.reports.grid import Grid, Outcome
from tests.helpers.synthetic_cells import figure_spec, full_grid, with_values

FOLDER = Path(__file__).parent
REPORTS = yaml.safe_load((FOLDER / "figures.yaml").read_text("utf-8"))
CELLS = {name: report.pop("cells", {}) for name, report in REPORTS.items()}
SPECS = {name: figure_spec(**report, name=name) for name, report in REPORTS.items()}
RENDERED = "sweep", "pareto", "bars"


def drawn(name: str, grid: Grid) -> Figure:
    spec = SPECS[name]
    module = getattr(spec.figure, "file", spec.figure.kind)
    with style():
        figure = import_module(f"plots.{module}").draw(data_of(spec, grid))
        figure.draw_without_rendering()
    return figure


def shown(figure: Figure) -> list[dict[str, Any]]:
    """What stands in each of its axes: places, words, and numbers to six digits."""

    def numbers(values) -> list[float]:
        return [float(f"{value:.6g}") for value in np.ravel(values)]

    def words(texts) -> list[str]:
        return [text.get_text() for text in texts]

    everything = []
    for ax in filter(Axes.get_subplotspec, figure.axes):  # not the scale of colours
        fixed, legend = isinstance(ax.xaxis.get_major_locator(), FixedLocator), ax.get_legend()
        found = {
            "place": numbers(ax.get_subplotspec().get_geometry()),
            "words": [ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel(), *words(ax.texts)],
            "scales": [ax.get_xscale(), ax.get_yscale(), *numbers(ax.get_ylim())],
            "ticks": words(ax.get_xticklabels() if fixed else ()),
            "legend": words(legend.get_texts() if legend else ()),
            "bands": [
                numbers(path.vertices) for area in ax.collections for path in area.get_paths()
            ],
            "bars": [
                numbers(bar.get_patch_transform().transform(bar.get_path().vertices))
                for bar in ax.patches
            ],
        }
        for line in ax.lines:
            look = f"{line.get_marker()} {line.get_linestyle()} {line.get_markerfacecolor()}"
            found.setdefault(look, []).append([numbers(values) for values in line.get_data()])
        everything.append({name: content for name, content in found.items() if content})
    return everything


def cells_of(name: str) -> Grid:
    """The cells of a figure: all measured, or as the report says."""
    grid = full_grid(SPECS[name])
    for labels_of, values in CELLS[name].items():
        coords = tuple(labels_of.split(" / "))
        if values is None:
            del grid[coords]
            continue
        numbers = {metric: value for metric, value in values.items() if metric != "agreement"}
        cell = with_values(grid[coords], **numbers)
        grid[coords] = replace(cell, agreement=values.get("agreement", {}))
    return grid


@pytest.mark.parametrize("kept", sorted((FOLDER / "drawn").iterdir()), ids=lambda kept: kept.stem)
def test_what_is_drawn_is_what_was_measured(kept: Path) -> None:
    """Number for number as it was last read by a person. A change that is meant: LEEWAY_ACCEPT=1
    writes the file anew, and its difference is read."""
    seen = shown(drawn(kept.stem, cells_of(kept.stem)))
    text = yaml.safe_dump(seen, allow_unicode=True, sort_keys=False, default_flow_style=None)
    if "LEEWAY_ACCEPT" in os.environ:
        kept.write_text(text, encoding="utf-8")
    assert text == kept.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", RENDERED)
def test_three_files_the_same_every_time(kind, tmp_path):
    grid = full_grid(SPECS[kind])
    first = render(SPECS[kind], grid, tmp_path / "a")
    assert [path.name for path in first] == [
        f"{kind}.{end}" for end in ("png", "pdf", "svg", "csv")
    ]
    assert all(path.stat().st_size > 5000 for path in first[:3])
    texts = drawn(kind, grid).findobj(Text)
    assert min(text.get_fontsize() for text in texts if text.get_text()) >= 8
    if kind == "pareto":  # the most that can differ; all kinds are saved alike
        for one, other in zip(first, render(SPECS[kind], grid, tmp_path / "b"), strict=True):
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("kind", RENDERED)
def test_what_was_not_measured_is_said_and_not_drawn_as_a_number(kind, tmp_path, monkeypatch):
    kept, spec = [], SPECS[kind]
    monkeypatch.setattr(
        import_module("plots.render"), "save", lambda figure, *_: kept.append(figure) or []
    )
    render(spec, {spec.points()[0].coords: Outcome.failed("out of memory")}, tmp_path)
    [figure] = kept
    said = figure.get_supxlabel().replace("\n", " ")
    assert said.startswith("not measured: ") and "failed: out of memory" in said
    assert said.endswith(f" and {len(spec.points()) - 1} more")
    drawn_lines = [line for ax in figure.axes for line in ax.lines if line.get_marker() != "x"]
    heights = [
        y for line in drawn_lines if list(line.get_xdata()) != [0, 1] for y in line.get_ydata()
    ]  # not axhline
    assert np.isnan(heights).all() and not any(ax.patches for ax in figure.axes)


def test_a_sweep_of_one_task_shows_its_points_and_its_whole_legend():
    """However wide the intervals of few prompts are, and however narrow the figure is."""
    figure = drawn("sweep_of_one_task", cells_of("sweep_of_one_task"))
    right = figure.axes[1]
    assert max(line.get_ydata()[0] for line in right.lines) < right.get_ylim()[1] < 10
    [legend] = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1 and len(legend.get_texts()) == 5


def test_series_differ_without_colour():
    looks = [look(i) for i in range(12)]
    assert len({(seen.marker, seen.dash) for seen in looks}) == 12
    assert len({seen.hatch for seen in looks[:6]}) == 6, "bars"
    light = [np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) for colour in COLOURS]
    assert all(abs(a - b) > 0.07 for a, b in pairwise(light))


@pytest.mark.parametrize("name", [name for name in SPECS if "of_rules" in name])
def test_figures_draw_rules_in_their_colours(name: str) -> None:
    axes = drawn(name, full_grid(SPECS[name])).axes
    marked = [line for ax in axes for line in ax.lines if line.get_marker() in MARKERS.values()]
    colours = {to_hex(line.get_color()) for line in marked}
    colours |= {to_hex(bar.get_facecolor()) for ax in axes for bar in ax.patches}
    assert colours == {to_hex(OF_RULES[family]) for family in ("ARC-Decode", "MARS")}


def test_the_efficiency_of_each_rule():
    """0.75 of 1.5; no limit is known at 0.9."""
    text = figure_csv(SPECS["limit"], data_of(SPECS["limit"], cells_of("limit")).frame)
    rows = csv.DictReader(io.StringIO(text))
    efficiency = [row["value"] for row in rows if row["value_name"] == "efficiency_at_d"]
    assert efficiency == ["", "0.25", "1.0", "1.0", "0.5", "", "", "", ""]


def test_names_hide_neither_points_nor_each_other() -> None:
    figure = Figure()
    ax = figure.subplots()
    places = [(0.5 + 0.01 * i, 0.5) for i in range(4)]
    ax.set(xlim=(0, 1), ylim=(0, 1))
    names = [(ax, labels.Name(f"threshold {i}", place, "black")) for i, place in enumerate(places)]
    labels.write(figure, names, [(ax, *place) for place in places])
    boxes = [text.get_window_extent() for text in ax.texts]
    points = ax.transData.transform(places)
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert not any(box.contains(*point) for box in boxes for point in points)
