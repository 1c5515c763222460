from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from methods.drafters.base import Proposer
from methods.trees.draft import Draft

Log = list[tuple[list[list[int]], Draft, list]]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Path]:
    """Path of a file of the reference data; skips where the data are not at hand."""
    shared = os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared")
    root = Path(shared) / "golden"

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
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Proposer]], Log]:
    """Watches a kind of proposer: of every cycle of the test the committed rows, the draft, and the
    lines of lookahead's windows."""

    def watch(proposer: type[Proposer]) -> Log:
        log, propose = [], proposer.propose

        def noted(self, rows, u):
            draft = propose(self, rows, u)
            windows = [[list(line) for line in w.lines] for w in getattr(self, "windows", ())]
            log.append(([list(row) for row in rows], draft, windows))
            return draft

        monkeypatch.setattr(proposer, "propose", noted)
        return log

    return watch
