"""`python -m bench.kernels`: is the table of what multiplies matrices right on this processor."""

from __future__ import annotations

import re

import pytest
import torch

import bench.kernels as kernels_command
from bench.kernels import arms_of, main, microseconds, show
from methods.engine.processor import NEVER, OTHERS, Kernels
from methods.engine.products import packs

TIMES = {1: (10.0, 20.0, 30.0), 5: (40.0, 20.0, 10.0)}
"""Tokens -> µs by PyTorch, by oneDNN, by oneDNN on the packed weight."""
needs_packs = pytest.mark.skipif(
    not packs(torch.float32), reason="this PyTorch lacks oneDNN's private operators"
)


@pytest.mark.parametrize(
    ("kernels", "packed", "line"),
    [
        (OTHERS, True, "the table is right here: what it chooses takes 1.00"),
        (OTHERS, False, "the table is right here: what it chooses takes 1.00"),
        (Kernels(NEVER, ()), True, "the table is not right here: what it chooses takes 2.50"),
        (Kernels(NEVER, ()), False, "the table is not right here: what it chooses takes 1.67"),
    ],
)
def test_the_verdict(kernels, packed, line, capsys):
    """(10 + 40) / (10 + 10) = 2.5, and (10 + 40) / (10 + 20) where nothing is packed."""
    ways = "PyTorch", "oneDNN", "oneDNN, packed"
    measured = {
        ((8, 4), 128, tokens): dict(zip(ways, times, strict=True))
        for tokens, times in TIMES.items()
    }
    show(measured, kernels, packed, "a pair")
    said = capsys.readouterr().out
    assert line in said
    assert ("packed" in said.splitlines()[2]) == packed


@needs_packs
def test_each_way_is_timed_on_weights_of_its_own():
    """The clock moves by one second at each reading, and each way reads it twice a round."""
    clock = iter(range(1000))
    arms = arms_of(torch.randn(1024, 512))
    assert {way: len(matrices) for way, matrices in arms.items()} == dict.fromkeys(arms, 8)
    assert [matrix.packed is not None for (matrix, *_) in arms.values()] == [False, False, True]
    assert microseconds(arms, 3, 2, lambda: next(clock)) == dict.fromkeys(arms, 1e6 / 8)


@needs_packs
def test_the_command(monkeypatch, capsys):
    monkeypatch.setattr(kernels_command, "IN_TURN", 1)
    assert main(["--rounds", "1"]) == 0
    assert re.search(r"the table is (not )?right here: .* of the best", capsys.readouterr().out)
