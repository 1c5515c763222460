"""python -m bench.cost to=FILE: a profile of this machine, and what it says of cells that were timed here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench import cost
from bench.config.compose import Composer
from bench.config.settings import profile_of
from bench.run import cost_profile
from tests.bench.conftest import Command

CHAIN = ("drafter=eagle3", "drafter.tree=chain", "draft.length=3")
SHAPES = {"model": [["draft.length=1"], ["draft.length=3"]], "prompt_lookup": [["draft.length=3"]],
          "eagle3": [["drafter.tree=chain", "draft.length=1"], ["drafter.tree=chain", "draft.length=3"],
                     ["drafter.total=8", "drafter.depth=2", "drafter.top_k=3"]], "hass": [["draft.length=oops"]]}


def test_a_profile_of_this_machine(command: Command, pair: list[str], tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drafter and rule that can run has a price, and those of timed cells are checked."""
    task = ["task=mini_gsm", "decoding.max_new_tokens=12"]
    store = command(*pair, *CHAIN, *task, "rule=lossless", "n=2", "timed=2", "trace=false").store.root
    monkeypatch.setattr(cost_profile, "SHAPES", SHAPES)
    monkeypatch.setattr(cost_profile, "JUDGED", (" ".join(CHAIN),))
    monkeypatch.setattr(Composer, "options", lambda self, group: ["lossless", "mars", "arc"])
    file = tmp_path / "mine.yaml"
    assert cost.measure_profile([f"to={file}", *pair, *task, "--prompts", "1", "--check", str(store)]) == 0
    assert "predicted ÷ measured there: median" in capsys.readouterr().out
    profile = profile_of({"cost": yaml.safe_load(file.read_text())})
    assert profile is not None and profile.check is not None and profile.check.cells == 1
    assert list(profile.target) == [1] and {1, 4, 8} <= set(profile.target[1])
    for costs in (profile.sampled, profile.greedy):
        assert costs is not None and set(costs.accept) == {"lossless", "mars"}, "arc has no constants here"
        assert {name: sorted(price[1].forwards) for name, price in costs.drafts.items()} == {
            "model": [1], "eagle3": [1, 3], "prompt_lookup": []}
    assert profile.sampled.drafts["model"][1].seconds((1, 1, 1)) > 0
