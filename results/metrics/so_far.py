"""How far a cell is while it is decoded: counts of its answers, and τ of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self


class Decoded(Protocol):
    """What is counted of an answer: its tokens, and those committed in each cycle."""

    @property
    def output_ids(self) -> list[int]: ...

    @property
    def committed(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class SoFar:
    """Sums over answers.

    answers    prompts answered
    tokens     emitted tokens
    committed  tokens committed in cycles
    cycles     draft–verify cycles
    """

    answers: int = 0
    tokens: int = 0
    committed: int = 0
    cycles: int = 0

    @classmethod
    def of(cls, answers: Iterable[Decoded]) -> Self:
        """Count these answers."""
        sums = [(1, len(answer.output_ids), sum(answer.committed), len(answer.committed)) for answer in answers]
        return cls(*map(sum, zip(*sums, strict=True))) if sums else cls()

    def plus(self, other: SoFar) -> SoFar:
        """Both together."""
        return SoFar(self.answers + other.answers, self.tokens + other.tokens, self.committed + other.committed,
                     self.cycles + other.cycles)

    @property
    def tau(self) -> float | None:
        """Tokens committed in a cycle; None without a cycle."""
        return self.committed / self.cycles if self.cycles else None
