"""DropMatch, Figure 3: how alike the heads answer, by models of meaning."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.data import At, Data
from plots.style import INK, SOFT, panel_grid
from plots.traced import LIGHT_TO_BLUE
from results.reports.grid import panels

TITLES = {"sentence": "cosine similarity", "entailment": "entailment", "bertscore": "BERTScore F1"}


def draw(data: Data) -> Figure:
    """A matrix for each measure and entry of `panels`: the mean over prompts of how the column's
    entry of `series` answers like that of the row, or of the probability that the row's answer
    entails the column's."""
    axis, measures = data.figure.series, data.figure.meanings
    places = [
        (title, at, measure)
        for title, at in panels(data.spec, data.figure.panels, len(measures))
        for measure in measures
    ]
    figure, axes = panel_grid(len(places), columns=len(measures) * (2 if len(places) > 4 else 1))
    labels = list(dict.fromkeys(entry.label for entry in data.spec.axes[axis]))
    for ax, (title, at, measure) in zip(axes, places, strict=True):
        ax.set_title(", ".join(part for part in (title, TITLES[measure]) if part))
        cells = [{**at, axis: label} for label in labels]
        values = [[_mean(data, row, column, measure) for column in cells] for row in cells]
        _matrix(ax, np.array(values), labels, measure)
    return figure


def _mean(data: Data, row: At, column: At, measure: str) -> float:
    """The mean over prompts of a measure between two cells; NaN where they were not compared."""
    series = " / ".join(column[axis] for axis in data.spec.axes)
    lines = data.lines(row, value_name=measure, series=series)
    return float(lines["value"].mean()) if len(lines) else np.nan


def _matrix(ax: Axes, values: np.ndarray, labels: list[str], measure: str) -> None:
    if np.isnan(values).all():
        say_empty(ax, measure)
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
        ax.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=8.5,
            color="white" if dark else INK,
        )
    ax.figure.colorbar(image, ax=ax, pad=0.02)


def say_empty(ax: Axes, measure: str) -> None:
    """Say which model the panel lacks."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(
        0.5,
        0.5,
        f"needs similarity.{measure}=MODEL",
        ha="center",
        va="center",
        transform=ax.transAxes,
        color=SOFT,
    )
