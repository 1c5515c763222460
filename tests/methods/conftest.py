from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from methods.drafters._heads import HeadProposer
from methods.trees.draft import Draft

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Path]:
    """Path of a file of the reference data; skips where the data are not at hand."""
    root = (
        Path(os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared"))
        / "golden"
    )

    def find(name: str) -> Path:
        if not (root / name).exists():
            pytest.skip(
                f"no reference data at {root / name}: set LEEWAY_SHARED to the folder that has "
                "golden/"
            )
        return root / name

    return find


@pytest.fixture(scope="session")
def golden_json(golden: Callable[[str], Path]) -> Callable[[str], dict]:
    def load(name: str) -> dict:
        path = golden(name)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            return json.load(file)

    return load


@pytest.fixture(scope="session")
def golden_cases(golden_json: Callable[[str], dict]) -> Callable[[str], list[dict]]:
    return lambda name: golden_json(name)["cases"]


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[list[int]], Draft]]:
    """Committed rows and draft of every cycle in which a head drafts while the test runs."""
    seen, real = [], HeadProposer.propose
    monkeypatch.setattr(
        HeadProposer,
        "propose",
        lambda self, rows, u: (
            seen.append(([list(row) for row in rows], real(self, rows, u))) or seen[-1][1]
        ),
    )
    return seen
