"""The processor, as Linux describes it, and what multiplies matrices on it. Imports nothing
heavy."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

CPUINFO = Path("/proc/cpuinfo")
Library = Literal["oneDNN", "PyTorch"]


@cache
def described(key: str, file: Path = CPUINFO) -> str:
    """What Linux says of the first processor under `key`; empty where it says nothing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system
        return ""
    match = re.search(rf"^{key}[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def product_library(vendor: str) -> Library:
    """What multiplies several tokens in float32 by an unpacked weight. F.linear's MKL is 1.3 to 3
    times as fast as oneDNN on Intel's processors and half as fast on AMD's; of others oneDNN is
    taken."""
    return "PyTorch" if vendor == "GenuineIntel" else "oneDNN"
