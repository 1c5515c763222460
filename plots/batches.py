"""Throughput and latency of batches on measured machines: what part `cycle` of `python -m bench.gpu` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from plots.style import look, note, panel_grid
from results.store.errors import StoreError

COLUMNS = ("machine", "arm", "batch", "tokens/s", "first token ms", "p95 of a token ms")
ABOUT = ("The whole loop with random weights; how many tokens a cycle keeps is replayed from recorded answers. All "
         "rows of a batch begin together: the time to the first token is that of the whole batch's prefill.")


def read(folder: Path) -> pd.DataFrame:
    """`COLUMNS`, a row for each machine, method and number of rows; `folder`: of the folders that bench.gpu wrote, one
    for each machine. Raises StoreError, one line, where nothing was measured or a file is damaged."""
    rows: list[list[object]] = []
    for file in sorted(folder.glob("*/cycle.json")):
        try:
            made = json.loads(min(file.parent.glob("environment_*.json")).read_text(encoding="utf-8"))
            machine = (made["accelerator"] or {}).get("name") or f"{made['cpu']['model']} (a CPU, tiny shapes)"
            rows += [[machine, *(row[name] for name in COLUMNS[1:])]
                     for row in json.loads(file.read_text(encoding="utf-8"))["tables"].get("batches", [])]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise StoreError(f"{file.parent}: not a result of bench.gpu ({type(error).__name__}: {error}); remove it, "
                             "or measure again") from error
    if not rows:
        raise StoreError(f"{folder}: no */cycle.json with batches; run `python -m bench.gpu parts=cycle` (docs/gpu.md)")
    return pd.DataFrame(rows, columns=list(COLUMNS))


def draw(frame: pd.DataFrame) -> Figure:
    """A row of panels for each machine, a line for each method."""
    looks = {arm: look(index) for index, arm in enumerate(frame["arm"].unique())}
    machines, metrics = frame["machine"].unique(), COLUMNS[3:]
    figure, axes = panel_grid(len(machines) * len(metrics), columns=len(metrics), inches=(3.4, 2.7))
    places = [(machine, metric) for machine in machines for metric in metrics]
    for ax, (machine, metric) in zip(axes, places, strict=True):
        own = frame[frame["machine"] == machine]
        for arm, shape in looks.items():
            line = own[own["arm"] == arm]
            ax.plot(line["batch"], line[metric], color=shape.colour, marker=shape.marker, ls=shape.dash)
        ax.set(xscale="log", yscale="log", xlabel="answers in a batch", ylabel=metric)
        ax.set_title(machine if metric == metrics[0] else "")
        ax.minorticks_off()
        ax.set_xticks(own["batch"].unique(), own["batch"].unique())
    figure.legend(handles=[*axes[0].lines], labels=[*looks], loc="outside upper left", ncols=len(looks))
    note(figure, ABOUT)
    return figure
