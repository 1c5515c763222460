"""The page of a set of trained heads: sizes, training data, and how often they agree with the target."""

from __future__ import annotations

import json
from pathlib import Path

from bench.training.cards import TEMPLATES, render
from plots.training_curves import head_curves

TITLES = {"eagle3": "EAGLE-3", "eagle": "EAGLE, EAGLE-2", "hass": "HASS", "medusa": "Medusa", "draft": "draft model"}


def write_card(out: Path) -> Path:
    """Write `out`/HEADS.md and `out`/heads.png from the training.json of every head in `out`; returns the page."""
    records = {name: out / name / "training.json" for name in TITLES}
    trained = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in records.items() if file.exists()}
    heads = {name: record for name, record in trained.items() if "rank_share" in record}  # not a whole draft model
    head_curves({TITLES[name]: head["loss"] for name, head in heads.items()}, out / "heads.png")
    steps = max(len(head["rank_share"]) for head in heads.values())
    card = out / "HEADS.md"
    card.write_text(render(TEMPLATES / "heads_card.md.j2", heads=heads, titles=TITLES, steps=steps), encoding="utf-8")
    return card
