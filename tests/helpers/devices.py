"""Where a test of the engine decodes: on a CPU always, and on a GPU where there is one; and what
stands for a CUDA graph on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from methods.engine.graphs import Graphs, mapped
from tests.helpers.no_wait import refused

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
        ],
    ),
]


def graphs_on(device: str) -> Graphs:
    """CUDA graphs on a GPU; on the CPU recordings that call their function again."""
    return Graphs(None if device == "cuda" else replayed)


def replayed(work: Callable[..., Any], arguments: list[Any]) -> tuple[Callable[[], None], Any]:
    """A recorder for the CPU: replays write into the first result, and may not read a value on the
    host."""
    result = work(*arguments)
    outputs = tensors(result)

    def replay():
        with refused():
            again = work(*arguments)
        for output, tensor in zip(outputs, tensors(again), strict=True):
            output.copy_(tensor)

    for output in outputs:
        output.fill_(1)  # a recording computes nothing: only its replay does
    return replay, result


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    found: list[torch.Tensor] = []
    mapped(result, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found
