"""What a store holds, without what the clock said, and what must never be found in it."""

from __future__ import annotations

import json
import os
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from results.store.cells import Store

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


def difference(got: Decoded, expected: Decoded, *, complete: bool = True) -> str:
    """The first difference of two stores in one line; without `complete`, only of the prompts that
    `got` has."""
    if complete and got.keys() != expected.keys():
        return f"cells {sorted(got.keys() ^ expected.keys())} are in one store alone"
    for cell, samples in got.items():
        if complete and (lacking := expected[cell].keys() - samples.keys()):
            return f"{cell}: {len(lacking)} of {len(expected[cell])} samples are missing"
        for prompt, sample in samples.items():
            if prompt not in expected.get(cell, {}):
                return f"{cell}: {prompt} was not asked for"
            if sample != expected[cell][prompt]:
                return f"{cell}: {prompt} has other tokens, text or score"
    return ""


def doubled(root: Path) -> str:
    """The prompts that a cell of a store holds twice, in one line."""
    for path in root.glob("*/samples.jsonl"):
        rows = [json.loads(line) for line in path.read_bytes().rpartition(b"\n")[0].splitlines()]
        counts = Counter(row["id"] for row in rows if "output_ids" in row)
        if twice := [prompt for prompt, count in counts.items() if count > 1]:
            return f"{path.parent.name}: {', '.join(twice)} doubled"
    return ""


def snapshot(folder: Path) -> dict[str, str]:
    """Each file of a folder with its digest, each link with its target."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
    }
