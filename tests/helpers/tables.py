"""Tables of cases: as text, one a line, and as YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def rows(text: str) -> list[tuple[str, ...]]:
    """The cells of each line, which ` | ` parts."""
    return [tuple(map(str.strip, line.split(" | "))) for line in text.strip().splitlines()]


def beside(file: str, name: str) -> Any:
    """What the YAML file of this name holds, in the folder of a module."""
    return yaml.safe_load(Path(file).with_name(name).read_text(encoding="utf-8"))
