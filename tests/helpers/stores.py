"""What a store holds, without what the clock said, and what must never be found in it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.store.cells import Store
from results.store.sample import Sample

Decoded = dict[str, dict[str, tuple[Any, ...]]]
"""Cell -> prompt -> (tokens, texts, score)."""


def decoded(root: Path) -> Decoded:
    """What was decoded in every cell of a store. Raises StoreError."""
    return {
        cell.key: {
            sample.id: (sample.output_ids, sample.texts, sample.score)
            for sample in cell.good_samples()
        }
        for cell in Store(root).cells()
    }


def samples_of(store: Store) -> dict[str, list[Sample]]:
    """Every sample of every cell, sorted by id; likelihoods, whose last digits depend on the batch,
    rounded."""

    def comparable(sample):
        return replace(sample, nll=round(sample.nll, 3), distortion=None)

    return {
        cell.key: sorted(map(comparable, cell.good_samples()), key=lambda sample: sample.id)
        for cell in store.cells()
    }


def doubled(root: Path) -> str:
    """The prompts that a cell of a store holds twice, in one line."""
    for path in root.glob("*/samples.jsonl"):
        rows = map(json.loads, path.read_bytes().rpartition(b"\n")[0].splitlines())
        counts = Counter(row["id"] for row in rows if "output_ids" in row)
        if twice := [prompt for prompt, count in counts.items() if count > 1]:
            return f"{path.parent.name}: {', '.join(twice)} doubled"
    return ""
