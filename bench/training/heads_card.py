"""The page that goes with trained heads: what they are and learned from, and how often they agree with the target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from plots.render import save
from plots.style import look, panel_grid, style

TITLES = {"eagle3": "EAGLE-3", "eagle": "EAGLE, EAGLE-2", "hass": "HASS", "medusa": "Medusa"}


def write_card(out: Path) -> Path:
    """`out`/HEADS.md and `out`/heads.png, from the training.json of every head that lies in `out`."""
    found = {name: out / name / "training.json" for name in TITLES}
    heads = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in found.items() if file.exists()}
    with style():
        for path in save(_curves(heads), out / "heads"):
            if path.suffix != ".png":
                path.unlink()
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "templates"), undefined=StrictUndefined,
                            trim_blocks=True, lstrip_blocks=True)
    card = out / "HEADS.md"
    steps = max(len(head["rank_share"]) for head in heads.values())
    card.write_text(templates.get_template("heads_card.md.j2").render(heads=heads, titles=TITLES, steps=steps),
                    encoding="utf-8")
    return card


def _curves(heads: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Training loss, and the agreement of the first draft token, against tokens seen."""
    figure, (loss, agreement) = panel_grid(2, inches=(3.6, 2.8))
    for i, (name, head) in enumerate(heads.items()):
        seen, tokens = look(i), [row["tokens"] / 1e6 for row in head["loss"]]
        for ax, values in ((loss, [row["loss"] for row in head["loss"]]),
                           (agreement, [100 * row["agreement"][0] for row in head["loss"]])):
            ax.plot(tokens, values, color=seen.colour, linestyle=seen.dash, lw=1.2, label=TITLES[name])
            ax.set_xlabel("training tokens (millions)")
    loss.set_yscale("log")
    loss.set_ylabel("loss (each head's own)")
    agreement.set_ylabel("first draft token right (%)")
    agreement.legend()
    return figure
