"""What a step reads, the copy bandwidth, and random models of a shape."""

from __future__ import annotations

import pytest
import torch

from bench.commands.open_cell import OpenCell
from methods.engine.loading import load_model, nbytes
from methods.engine.roofline import step_bytes


def test_an_autoregressive_step_reads_all_but_the_input_embedding() -> None:
    """2048 x 64 entries of the embedding are not read; 2 x 8 layers x 2 heads x 16 x 4 bytes a cached token are."""
    target = load_model("random:models/shapes/tiny", dtype="float32")
    assert step_bytes(target) == (nbytes(target.model) - 2048 * 64 * 4, 2 * 8 * 2 * 16 * 4)


def test_a_random_head_is_one_of_its_shape() -> None:
    opened = OpenCell.compose(["pair=local", "pair.target=random:models/shapes/tiny",
                               "pair.eagle3=random:models/shapes/tiny_eagle3", "method=eagle3", "engine.device=cpu"])
    head = opened.method.model
    assert torch.equal(head.to_target, torch.arange(512)) and head.model.t2d.sum() == 512
    assert float(head.model.fc.weight.std()) == pytest.approx(0.02, rel=0.05)
    assert torch.all(head.model.norm.weight == 1)
