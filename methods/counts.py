"""What the decode loop counts: declared here once, and mirrored by the store (`results.store.sample.Counts`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of one answer, or of several turns together. Lists have one entry per draft–verify cycle.

    committed  tokens committed in each cycle, the correction or bonus included.
    accepted   draft tokens accepted in each cycle.
    nodes      draft tokens that the target verified in each cycle, without root and padding.
    levels     depth of the deepest of them in each cycle.
    relaxed    emitted draft tokens that the lossless test rejects and that are not the target's argmax.
    greedier   emitted draft tokens that the lossless test rejects although they are the target's argmax.
    drafted    draft tokens before pruning, 0 without pruning.
    pruned     those of them that pruning dropped.
    flags      name of a rule's flag -> in how many contexts of emitted tokens it was set.
    """

    committed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    relaxed: int = 0
    greedier: int = 0
    drafted: int = 0
    pruned: int = 0
    flags: dict[str, int] = field(default_factory=dict)

    def __iadd__(self, other: Counts) -> Self:
        for name, value in Counts.plain(other).items():
            own = getattr(self, name)
            total = {key: own.get(key, 0) + value.get(key, 0) for key in {**own, **value}} if isinstance(
                own, dict) else own + value
            setattr(self, name, total)
        return self

    def plain(self) -> dict[str, Any]:
        """Name of a count -> its value, without what a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(Counts)}
