"""How alike texts are, by models of meaning: matrices of cells (DropMatch, Figure 3) and distributions of continuations
(ARC-Decode, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from plots.histogram import LIGHT_TO_BLUE
from plots.style import INK, SOFT, legend_of, look, panel_grid
from results.reports.figures import Agreement, Matrices
from results.reports.grid import Grid, outcome, panels
from results.reports.spec import FigureSpec

_TITLES = {"sentence": "cosine similarity", "entailment": "entailment", "bertscore": "BERTScore F1"}
_BINS = 40


def draw_matrices(matrices: Matrices, spec: FigureSpec, grid: Grid) -> Figure:
    """A matrix for each measure and place: the mean over prompts of how the column's cell answers like that of the row,
    or of the probability that the row's answer entails the column's."""
    places = [(title, at, measure) for title, at in panels(spec, matrices.panels, len(matrices.models))
              for measure in matrices.models]
    figure, axes = panel_grid(len(places), columns=len(matrices.models) * (2 if len(places) > 4 else 1))
    labels = list(dict.fromkeys(entry.label for entry in spec.axes[matrices.paths]))
    for ax, (title, at, measure) in zip(axes, places, strict=True):
        ax.set_title(", ".join(part for part in (title, _TITLES[measure]) if part))
        coords = [tuple({**at, matrices.paths: label}[axis] for axis in spec.axes) for label in labels]
        values = [[_mean(grid, row, column, measure) for column in coords] for row in coords]
        _matrix(ax, np.array(values, float), labels, measure)
    return figure


def _mean(grid: Grid, row: tuple[str, ...], column: tuple[str, ...], measure: str) -> float:
    """The mean over prompts of a measure between two cells; NaN where they were not compared."""
    known = outcome(grid, row).agreement.get(measure, {}).get(" / ".join(column), ())
    return float(np.mean(known)) if len(known) else np.nan


def _matrix(ax: Axes, values: np.ndarray, labels: list[str], measure: str) -> None:
    if np.isnan(values).all():
        _empty(ax, measure)
        return
    low = min(0.0, float(np.nanmin(values)))
    image = ax.imshow(values, cmap=LIGHT_TO_BLUE, vmin=low, vmax=1)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    if measure == "entailment":
        ax.set_ylabel("premise")
        ax.set_xlabel("hypothesis")
    ax.grid(False)
    for (row, column), value in np.ndenumerate(values):
        dark = (value - low) / (1 - low) > 0.55
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color="white" if dark else INK)
    ax.figure.colorbar(image, ax=ax, pad=0.02)


def draw_agreement(agreement: Agreement, spec: FigureSpec, grid: Grid) -> Figure:
    """The distribution of each measure over continuations; a hollow marker on the upper edge stands at the mean."""
    places = [(title, at, measure) for title, at in panels(spec, agreement.panels, len(agreement.models))
              for measure in agreement.models]
    figure, axes = panel_grid(len(places), columns=3)
    for ax, (title, at, measure) in zip(axes, places, strict=True):
        name = "probability of contradiction" if measure == "entailment" else _TITLES[measure]
        ax.set_title(title)
        ax.set_xlabel(f"{name} with the answer's own continuation")
        ax.set_ylabel("share of continuations (%)")
        coords = tuple(at[axis] for axis in spec.axes)
        _distributions(ax, outcome(grid, coords).agreement.get(measure, {}), measure)
    handles, _ = legend_of(axes)
    if handles:
        mean = Line2D([], [], color=INK, marker="o", markerfacecolor="white", linestyle="none",
                      label="hollow marker: mean")
        figure.legend(handles=[*handles, mean], loc="outside upper left", ncols=3)
    return figure


def _distributions(ax: Axes, series: Mapping[str, Sequence[float]], measure: str) -> None:
    known = {name: np.asarray(values, float) for name, values in series.items() if len(values)}
    if not known:
        _empty(ax, measure)
        return
    low = min(0.0, *(float(values.min()) for values in known.values()))
    for i, (name, values) in enumerate(known.items()):
        shape = look(i)
        shares, edges = np.histogram(values, bins=_BINS, range=(low, 1.0))
        ax.stairs(100 * shares / len(values), edges, color=shape.colour, linestyle=shape.dash, linewidth=1.6,
                  label=f"{name} (n = {len(values):,})")
        ax.plot([values.mean()], [1], shape.marker, color=shape.colour, transform=ax.get_xaxis_transform(),
                clip_on=False, markersize=7, markerfacecolor="white")


def _empty(ax: Axes, measure: str) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, f"needs similarity.{measure}=MODEL", ha="center", va="center", transform=ax.transAxes, color=SOFT)
