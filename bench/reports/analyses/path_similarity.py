"""How alike cells answer the same prompts: cosine similarity and entailment of every pair (DropMatch, Figure 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.reports.analyses import AGREEMENT
from bench.reports.analyses.agreement import Models, settings_of

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.session import Session

MEASURES = ("sentence", "entailment")


def compare_paths(cells: Sequence[Cell], session: Session, models: Models) -> None:
    """Compare the answers of every two of these cells, prompt by prompt, and write each cell's numbers into its folder:
    measure -> name of the other cell -> one number per common prompt. What was compared before is not compared again.
    Raises ModelError, StoreError."""
    texts = {cell.name: {sample.id: "\n\n".join(sample.texts) for sample in session.folder(cell).good_samples()}
             for cell in cells}
    common = sorted(set.intersection(*(set(of_cell) for of_cell in texts.values())))
    if not common:
        return
    for cell in cells:
        folder = session.folder(cell)
        about = settings_of(cell, models, MEASURES) | {"cells": list(texts), "prompts": len(common)}
        if (folder.record(AGREEMENT) or {}).get("about") == about:
            continue
        own = [texts[cell.name][prompt] for prompt in common]
        values = {measure: {name: models.score(measure, "entailment", own, [of_cell[prompt] for prompt in common])
                            for name, of_cell in texts.items()} for measure in models.given(MEASURES)}
        with folder.lock(wait=True):
            folder.write_record(AGREEMENT, {"about": about, "values": values})
