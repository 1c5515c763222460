"""Tensors inside tuples, lists, dicts and dataclasses with slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A value with all its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if not isinstance(parts := parts_of(value), dict):
        return value
    changed = {name: mapped(part, change) for name, part in parts.items()}
    if isinstance(value, dict):
        return changed
    kind = type(value)
    return kind(changed.values()) if isinstance(value, tuple | list) else kind(**changed)


def parts_of(value: Any) -> dict[Any, Any] | None:
    """The parts of a container, None for another value."""
    if isinstance(value, dict):
        return value
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type) and hasattr(type(value), "__slots__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None
