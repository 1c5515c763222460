"""JSON as the store writes and reads it."""

from __future__ import annotations

import json
import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON that UTF-8 can carry: a lone surrogate (`'\\ud800'` in an error text) is written as its six characters.

    Raises ValueError for NaN and infinities, TypeError for values that JSON does not know."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=indent)
    return _SURROGATE.sub(lambda match: f"\\\\u{ord(match[0]):04x}", text)


def from_json(text: str | bytes, unique: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError, also for one that is nested too deeply to be read, and with `unique`
    for a key that one object has twice."""
    try:
        return json.loads(text, object_pairs_hook=_unique if unique else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:60]!r} is given twice")
        found[key] = value
    return found
