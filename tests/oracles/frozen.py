"""Frozen data of an oracle, and how what the code gives now is compared with it."""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[1]
TOLERANCE = 1e-9
MISSING = "(nothing)"


def read(kind: str) -> Any:
    """The data of data/KIND.json.xz."""
    with lzma.open(FOLDER / "data" / f"{kind}.json.xz", "rt", encoding="utf-8") as file:
        return json.load(file)


def write(kind: str, data: Any) -> Path:
    path = FOLDER / "data" / f"{kind}.json.xz"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return path


@cache
def renames() -> Mapping[str, Any]:
    """renames.yaml, which explains itself."""
    return yaml.safe_load((FOLDER / "renames.yaml").read_text(encoding="utf-8"))


def portable(value: Any) -> Any:
    """Plain data as JSON gives it back, without the path of this checkout."""
    return json.loads(json.dumps(value, ensure_ascii=False, default=str).replace(f"{PROJECT}/", ""))


@dataclass
class Result:
    """What a comparison found: how many things were compared, and one line for each that differs."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def check(self, name: str, frozen: Any, found: Any) -> None:
        """Compare one thing; each place where the two differ is a line."""
        self.compared += 1
        self.differences += [f"{name}{line}" for line in differences(frozen, found)]


def differences(frozen: Any, found: Any, at: str = "") -> Iterator[str]:
    """Where two plain values differ: numbers by more than TOLERANCE, relative above 1, anything else at all."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*frozen, *found]):
            yield from differences(frozen.get(key, MISSING), found.get(key, MISSING), f"{at}: {key}")
    elif isinstance(frozen, list) and isinstance(found, list) and len(frozen) == len(found):
        for i, (one, other) in enumerate(zip(frozen, found, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif not _equal(frozen, found):
        yield f"{at}: {str(frozen)[:200]!r} became {str(found)[:200]!r}"


def _equal(frozen: Any, found: Any) -> bool:
    numbers = (int, float)
    if isinstance(frozen, numbers) and isinstance(found, numbers) and not isinstance(frozen, bool):
        return math.isclose(frozen, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(frozen == found)
