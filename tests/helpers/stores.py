"""What a store holds, without what the clock said. A prompt that a cell holds twice is an error
(StoreError)."""

from __future__ import annotations

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


def answers(root: Path, part: str = "") -> dict[str, str]:
    """Cell, whose name holds the part -> its samples.jsonl."""
    return {file.parent.name: file.read_text() for file in root.glob(f"*{part}*/samples.jsonl")}


def samples_of(store: Store) -> dict[str, list[Sample]]:
    """Every sample of every cell, sorted by id; likelihoods, whose last digits depend on the batch,
    rounded."""

    def comparable(sample):
        return replace(sample, nll=round(sample.nll, 3), distortion=None)

    return {
        cell.key: sorted(map(comparable, cell.good_samples()), key=lambda sample: sample.id)
        for cell in store.cells()
    }
