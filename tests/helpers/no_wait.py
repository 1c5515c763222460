"""Refuse whatever makes the host wait for the device, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = {
    Tensor.item,
    Tensor.tolist,
    Tensor.cpu,
    Tensor.numpy,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.nonzero,
    torch.nonzero,
    torch.equal,
    Tensor.equal,
    torch.allclose,
}
"""Functions that read a tensor's values on the host."""
VALUE_SHAPED = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "unique",
    "_unique2",
    "unique_consecutive",
    "equal",
    "unique_dim",
    "repeat_interleave.Tensor",
    "bincount",
    "histc",
)
"""Operators whose result is a number of the host, or has a shape that depends on values."""


class Waited(AssertionError):
    """The host waited for the device."""


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in READS:
            raise Waited(f"{func.__name__} reads the device")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removeprefix("aten.")
        by_mask = name == "index.Tensor" and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if by_mask or f"{name}.".startswith(tuple(f"{one}." for one in VALUE_SHAPED)):
            raise Waited(f"{func} reads the device")
        return func(*args, **(kwargs or {}))


@contextmanager
def _synchronising(mode):
    """CUDA's own check, where there is a GPU."""
    before = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else None
    if before is not None:
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        if before is not None:
            torch.cuda.set_sync_debug_mode(before)


@contextmanager
def refused() -> Iterator[None]:
    """No value of a tensor may be read inside; on a GPU CUDA's own check is on too. Raises
    Waited."""
    with _Functions(), _Operators(), _synchronising("error"):
        yield


@contextmanager
def allowed() -> Iterator[None]:
    """The cycle's one copy to the host."""
    with (
        torch._C.DisableTorchFunction(),
        torch.utils._python_dispatch._disable_current_modes(),
        _synchronising("default"),
    ):
        yield
