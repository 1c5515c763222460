"""Draft models cut out of their target, through the whole command: as drafts, by themselves, and
not trained yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from methods.decode import Limits, Request, generate
from methods.engine.loading import load_cut, load_model
from methods.method import build_method
from methods.registry import drafter, rule
from methods.sampling import Sampling
from tasks.mini import MiniTask
from tests.helpers.tiny_models import save_cut


@pytest.fixture
def cut(pair_folder: Path, tmp_path: Path) -> Path:
    """A cut of the small target: one of its layers, and one of its own that starts as the target's
    last."""
    return save_cut(tmp_path / "cut", load_model(str(pair_folder / "target")), shared=1)


def test_a_cut_runs_by_itself(command, cut: Path, pair_folder: Path) -> None:
    """As pair.target it is loaded with the target that its config.json names."""
    result = command(f"pair.target={cut} method=ar n=3")
    alone = load_cut(str(cut), load_model(str(pair_folder / "target")))
    method = build_method(alone, None, drafter("none")(), rule("greedy")(), Sampling(0.0), 1)
    for prompt in MiniTask("mini_gsm").prompts(3):
        ids = alone.encode([{"role": "user", "content": prompt.turns[0]}])
        [expected] = generate(method, [Request(ids, "key")], Limits(12, alone.eos_ids))
        assert {one.id: one for one in result.cell.samples()}[
            prompt.id
        ].output_ids == expected.output_ids


def test_a_cut_that_names_no_target_drafts_only(command, cut: Path) -> None:
    config = json.loads((cut / "config.json").read_text())
    (cut / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if key != "target"})
    )
    command(f"pair.draft={cut} method=sps n=1")
    result = command(f"pair.target={cut} method=ar n=1", status=2)
    [line] = result.err.splitlines()
    assert "a cut of its target, which its config.json does not name" in line
