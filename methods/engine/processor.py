"""The processor, as Linux describes it, and the table of what multiplies matrices on it. Imports
nothing heavy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

CPUINFO = Path("/proc/cpuinfo")
Kernel = Literal["PyTorch", "oneDNN", "oneDNN, packed"]
"""F.linear, with what stands behind it (MKL in PyTorch's own builds); oneDNN on the weight as it
is; oneDNN on a copy of the weight in its own layout."""
NEVER = 1 << 62
"""A number of tokens that no forward has."""
MIB = 1 << 20


@cache
def described(key: str, file: Path = CPUINFO) -> str:
    """What Linux says of the first processor under `key`; empty where it says nothing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system
        return ""
    match = re.search(rf"^{key}[ \t]*:[ \t]*(\S.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


@dataclass(frozen=True, slots=True)
class Kernels:
    """What multiplies a float32 weight on the CPU, by the number of tokens and the weight's size.
    `python -m bench.kernels` measures all choices against it.

    plain   oneDNN multiplies a weight that is not packed from so many tokens on.
    packed  (bytes, tokens), bytes ascending: a weight of so many bytes is packed in a model that
            packs (`methods/engine/products.py`), and multiplied so from so many tokens on. The last
            entry that the weight reaches counts.
    """

    plain: int
    packed: tuple[tuple[int, int], ...]

    def packed_from(self, size: int) -> int:
        """From how many tokens on a packed weight of `size` bytes serves."""
        return next((tokens for least, tokens in reversed(self.packed) if size >= least), NEVER)

    def chosen(self, size: int, tokens: int, packs: bool) -> Kernel:
        """For a weight of `size` bytes in a model that packs, or not."""
        if packs and tokens >= self.packed_from(size):
            return "oneDNN, packed"
        return "oneDNN" if tokens >= self.plain else "PyTorch"

    def __str__(self) -> str:
        """One line, for the record of a run."""
        plain = "PyTorch" if self.plain == NEVER else f"oneDNN from {self.plain} tokens"
        packed = (f"from {size // MIB} MiB, {tokens} tokens" for size, tokens in self.packed)
        return "; ".join([plain, f"packed in large models: {', '.join(packed)}"])


INTEL = Kernels(NEVER, ((6 * MIB, 5), (64 * MIB, 2)))
"""Sapphire Rapids: behind F.linear MKL is 1.3 to 3 times as fast as oneDNN on weights that the
second-level cache holds."""
OTHERS = Kernels(2, ((0, 2),))
"""AMD's Rome: oneDNN is up to twice as fast as MKL, but for a single token."""


def kernels_of(vendor: str) -> Kernels:
    """For a processor of this `vendor_id`."""
    return INTEL if vendor == "GenuineIntel" else OTHERS


KERNELS = kernels_of(described("vendor_id"))
"""Of this machine."""
