"""Refuse whatever makes the host wait for the device, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

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
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise Waited(f"{func.__name__} reads the device")
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        by_mask = name == "index.Tensor" and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if by_mask or any(
            name == refused or name.startswith(f"{refused}.") for refused in VALUE_SHAPED
        ):
            raise Waited(f"{func} reads the device")
        return func(*args, **(kwargs or {}))


@contextmanager
def refused() -> Iterator[None]:
    """No value of a tensor may be read inside; on a GPU CUDA's own check is on too. Raises
    Waited."""
    with ExitStack() as stack:
        stack.enter_context(_Functions())
        stack.enter_context(_Operators())
        if torch.cuda.is_available():
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("error")
            stack.callback(torch.cuda.set_sync_debug_mode, before)
        yield


@contextmanager
def allowed() -> Iterator[None]:
    """The cycle's one copy to the host."""
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        before = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")
        yield
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode(before)
