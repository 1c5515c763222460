"""CUDA graphs: a function of tensors is recorded once per set of shapes and then replayed with one launch.

A recording reads and writes fixed memory. So the tensors among the arguments are copied into buffers before each
replay, results are copied out, and caches come out of a pool: a prompt's cache lies where the last one's did.

The tests replay recorded calls on the CPU; `python -m bench.gpu` compares answers with and without them on a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from methods.engine.cache import Memory, SlotCache
from methods.engine.nested import mapped, parts_of

Result = TypeVar("Result")
Work = Callable[..., Any]
Recorder = Callable[[Work, list[Any]], tuple[Callable[[], None], Any]]
"""A function and its arguments -> what replays the call, and the result that a replay overwrites."""


class CudaRecorder:
    """Records calls as CUDA graphs, which share their memory. It ends with the last of them, and a pool that has ended
    takes no other graph: so each set of recordings has a pool of its own."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, work: Work, arguments: list[Any]) -> tuple[Callable[[], None], Any]:
        """The call first runs once beside the recording, where libraries prepare themselves, so running it twice must
        do what running it once does."""
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


@dataclass(slots=True)
class _Recording:
    """A recorded call: the tensors that it reads, what replays it and its result."""

    buffers: list[Tensor]
    replay: Callable[[], None]
    result: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """An object as a constant of a recording: it alone is equal to itself, and lives as long as the recording."""

    value: Any

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value


class Graphs:
    """Recorded calls of the models that share it, by function, constants and shapes.

    recorder  records a call; None: as CUDA graphs. Another one serves the tests.
    replays   how many calls were replayed.
    """

    def __init__(self, recorder: Recorder | None = None):
        self.recorder: Recorder = recorder or CudaRecorder()
        self.recordings: dict[Hashable, _Recording] = {}
        self.replays = 0
        self._free: list[Memory] = []

    def borrow(self, borrower: SlotCache, memory: Callable[[int], Memory], slots: int) -> Memory:
        """Memory for a cache of at least `slots` slots until `borrower` is gone; `memory` makes it for a number of
        slots. What was lent before is lent again where it has the same shape otherwise."""
        slots = 1 << (slots - 1).bit_length()
        kind = memory(0)
        for place, free in enumerate(self._free):
            if free.fits(kind, slots):
                lent = self._free.pop(place)
                lent.starts.zero_()
                break
        else:
            lent = memory(slots)
        weakref.finalize(borrower, self._free.append, lent)
        return lent

    @torch.inference_mode()
    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """work(*arguments), replayed. Tensors in the arguments and in tuples, lists, dicts and dataclasses with slots
        among them may differ from call to call; everything else is a constant of the recording."""
        constants: list[Hashable] = []
        inputs = list(_tensors(arguments, constants))
        key = work, tuple(constants)
        if key not in self.recordings:
            held = [mapped(argument, torch.clone) for argument in arguments]
            self.recordings[key] = _Recording(list(_tensors(held, [])), *self.recorder(work, held))
        recording = self.recordings[key]
        for buffer, tensor in zip(recording.buffers, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        recording.replay()
        self.replays += 1
        result: Result = mapped(recording.result, torch.clone)
        return result


def _tensors(value: Any, constants: list[Hashable]) -> Iterator[Tensor]:
    """The tensors in a value, in order; appends what else identifies it."""
    if isinstance(value, Tensor):
        constants.append((value.shape, value.dtype))
        yield value
    elif isinstance(value, SlotCache):
        constants.append((_Same(value.memory), value.visible))
    elif isinstance(parts := parts_of(value), dict):
        constants.append((type(value), tuple(parts)))
        for part in parts.values():
            yield from _tensors(part, constants)
    else:
        constants.append(value if isinstance(value, bool | int | float | str | None) else _Same(value))
