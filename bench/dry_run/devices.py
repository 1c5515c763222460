"""What each device holds of a cell whose target is divided among several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.dry_run.memory import Estimate


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes that one device holds; `holds` says of what."""

    holds: str
    weights: int
    cache: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.working


def shares(cell: Cell, memory: Estimate) -> list[Share]:
    """The share of each device, in order; a single one for engine.parallel=none."""
    target, *drafters = memory.parts
    others = "".join([f", {part.role}" for part in drafters] + [f", {role} (size unknown)" for role in memory.missing])
    more = sum(part.weights for part in drafters), sum(part.cache for part in drafters)
    count = cell.engine.devices
    if cell.engine.parallel == "tensor":
        divided = -(-(target.weights - (0 if target.tied else target.embedding)) // count)
        holds = f"1/{count} of every layer and of the LM head, embedding{others}"
        return [Share(holds, target.embedding + divided + more[0], target.cache // count + more[1],
                      memory.working)] * count
    if cell.engine.parallel == "layers":
        return [_stage(target.layers, index, count, memory, others, more) for index in range(count)]
    return [Share(f"target{others}", target.weights + more[0], target.cache + more[1], memory.working)]


def _stage(layers: int, index: int, count: int, memory: Estimate, others: str, more: tuple[int, int]) -> Share:
    """As `methods/engine/spread.py` spreads the layers; all else is on the first device."""
    target = memory.parts[0]
    outside = target.embedding if target.tied else 2 * target.embedding
    first, *rest = (layer for layer in range(layers) if layer * count // layers == index)
    held = 1 + len(rest)
    holds = f"layers {first} to {first + held - 1}"
    weights, cache = (target.weights - outside) * held // layers, target.cache * held // layers
    if index:
        return Share(holds, weights, cache, memory.working)
    return Share(f"{holds}, embedding, LM head{others}", weights + outside + more[0], cache + more[1],
                 memory.working)


def grouped(all_shares: Sequence[Share]) -> list[tuple[str, Share]]:
    """The name of each device, or of all where they hold the same, and its share."""
    if len(set(all_shares)) == 1 and len(all_shares) > 1:
        return [(f"each of {len(all_shares)}", all_shares[0])]
    return [(str(number), share) for number, share in enumerate(all_shares)]
