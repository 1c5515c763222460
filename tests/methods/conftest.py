from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from methods.drafters.base import Proposer
from methods.trees.draft import Draft

Log = list[tuple[list[list[int]], Draft, list]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


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
