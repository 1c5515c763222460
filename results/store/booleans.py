"""Find true and false where a number belongs: pydantic takes them for 1 and 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel


def booleans_for_numbers(given: Any, validated: Any, at: tuple[int | str, ...] = ()) -> Iterator[tuple[int | str, ...]]:
    """The locations in `given`, plain data, whose boolean became a number in `validated`, what pydantic made of it."""
    if isinstance(given, bool):
        if isinstance(validated, int | float) and not isinstance(validated, bool):
            yield at
    elif isinstance(given, Mapping):
        for key, value in given.items():
            if isinstance(validated, BaseModel):
                yield from booleans_for_numbers(value, getattr(validated, str(key), None), (*at, key))
            elif isinstance(validated, Mapping):
                yield from booleans_for_numbers(value, validated.get(key), (*at, key))
    elif isinstance(given, list | tuple) and isinstance(validated, list | tuple):
        for index, (value, one) in enumerate(zip(given, validated, strict=False)):
            yield from booleans_for_numbers(value, one, (*at, index))
