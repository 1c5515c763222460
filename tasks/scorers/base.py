"""The base of all scorers: typed options, and a score for the answers to one prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from tasks.base import Score


class Scorer(BaseModel, ABC):
    """`metric` names the score, `proportion` says that it is 0 or 1 for each prompt.

    `needs`: entries of the reference without which there is nothing to score against."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: ClassVar[str]
    proportion: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("target",)

    name: str

    def score(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        """Score the answers, one text a turn; the value is None where the reference lacks an entry of `needs`. Raises
        TaskError."""
        if any(reference.get(field) is None for field in self.needs):
            return Score(None)
        return self._score(reference, texts)

    def check_options(self) -> None:
        """Raises TaskError for options under which no answer could be scored on any machine."""

    def check(self) -> None:
        """Raises TaskError when answers could not be scored on this machine."""

    @abstractmethod
    def _score(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        """The score against a complete reference."""
