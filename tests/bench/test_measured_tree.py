"""A head whose folder says which tree is cheapest is not grown into another without a word."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.config.paths import MODELS
from bench.run.session import measured_tree


def cell(source: Path, nodes: int, total: int) -> Any:
    pair = SimpleNamespace(nodes=nodes, beams=2, checkpoint=lambda role: SimpleNamespace(source=str(source)))
    drafter = SimpleNamespace(tree="dynamic", total=total, top_k=2)
    return SimpleNamespace(pair=pair, drafter=SimpleNamespace(options=drafter), roles=("target", "eagle3"))


def test_another_tree_than_the_measured_one_is_named(tmp_path: Path) -> None:
    head = MODELS / "smollm2" / "eagle3"
    assert measured_tree(cell(head, 8, 8)) == measured_tree(cell(tmp_path, 60, 60)) == ""
    assert measured_tree(cell(head, 60, 24)) == "", "a tree that the command names itself"
    assert measured_tree(cell(head, 60, 60)).endswith("give pair.nodes=8 pair.beams=2")
    (tmp_path / "tree.json").write_text("[1]")
    with pytest.raises(ValueError, match="must be a JSON object with nodes, beams and measured"):
        measured_tree(cell(tmp_path, 60, 60))
