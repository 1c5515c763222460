"""CUDA graphs: a function of tensors is recorded once per set of shapes and then replayed with one
launch.

A recording reads and writes fixed memory. So the tensors among the arguments are copied into
buffers before each replay, results are copied out, and caches come out of a pool
(`methods/engine/cache.py`): a prompt's cache lies where the last one's did.

The tests replay recorded calls on the CPU; `make test-gpu` compares answers with and without them
on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Work = Callable[..., Any]
Recorder = Callable[[Work, list[Any]], tuple[Callable[[], None], Any]]
"""A function and its arguments -> what replays the call, and the result that a replay
overwrites."""


class CudaRecorder:
    """Records calls as CUDA graphs, which share their memory. It ends with the last of them, and a
    pool that has ended takes no other graph: so each set of recordings has a pool of its own."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, work: Work, arguments: list[Any]) -> tuple[Callable[[], None], Any]:
        """The call first runs once beside the recording, where libraries prepare themselves, so
        running it twice must do what running it once does."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work(*arguments)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = work(*arguments)
        return graph.replay, result


class _Same(NamedTuple):
    """An object as a constant of a recording: it alone is equal to itself, and lives as long as the
    recording."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


class Graphs:
    """Recorded calls of the models that share it, by function, constants and shapes.

    recorder  records a call; None: as CUDA graphs. Another one serves the tests.
    replays   how many calls were replayed.
    free      memory of caches that are gone, for the next ones.
    """

    def __init__(self, recorder: Recorder | None = None):
        self.recorder: Recorder = recorder or CudaRecorder()
        self.recordings: dict[Hashable, tuple[list[Tensor], Callable[[], None], Any]] = {}
        self.replays = 0
        self.free: list[Any] = []

    @torch.inference_mode()
    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """work(*arguments), replayed. Tensors in the arguments and in tuples, lists, dicts and
        dataclasses with slots among them may differ from call to call; everything else is a
        constant of the recording, a cache by its `recorded_as`."""
        inputs: list[Tensor] = []
        constants: list[Hashable] = []
        mapped(arguments, partial(_noted, inputs), constants.append)
        key = work, tuple(constants)
        if key not in self.recordings:
            buffers = list[Tensor]()
            copies = mapped(list(arguments), lambda tensor: _noted(buffers, tensor.clone()))
            self.recordings[key] = buffers, *self.recorder(work, copies)
        buffers, replay, recorded = self.recordings[key]
        for buffer, tensor in zip(buffers, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        replay()
        self.replays += 1
        result: Result = mapped(recorded, torch.clone)
        return result


def _noted(tensors: list[Tensor], tensor: Tensor) -> Tensor:
    tensors.append(tensor)
    return tensor


def mapped(
    value: Any,
    change: Callable[[Tensor], Tensor],
    note: Callable[[Hashable], None] = lambda _: None,
) -> Any:
    """A value with all its tensors changed. `note` is called with all else that identifies it."""
    if isinstance(value, Tensor):
        note((value.shape, value.dtype))
        return change(value)
    if not isinstance(parts := _parts(value), dict):
        same, *others = getattr(value, "recorded_as", (value,))
        note(
            value if isinstance(value, bool | int | float | str | None) else (_Same(same), *others)
        )
        return value
    kind = type(value)
    note((kind, tuple(parts)))
    changed = {name: mapped(part, change, note) for name, part in parts.items()}
    if isinstance(value, dict):
        return changed
    return kind(changed.values()) if isinstance(value, tuple | list) else kind(**changed)


def _parts(value: Any) -> dict[Any, Any] | None:
    """The parts of a dict, tuple, list or dataclass with slots, None for another value."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type) and hasattr(type(value), "__slots__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None
