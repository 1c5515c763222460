"""The base of all scorers: typed options, and a score for the answers to one prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from tasks.base import Reference, Score, StrictModel

Outside = Callable[[str], tuple[str, type[Any]] | None]
"""The name of a scorer -> its name in all processes and its class, where it lies outside of the
project."""
_find_outside: list[Outside] = []


def find_outside(find: Outside) -> None:
    """Let this find the scorers outside of the project; the tasks know no other folder."""
    _find_outside[:] = [find]


def class_outside(name: str) -> tuple[str, type[Any]] | None:
    """The name and class of a scorer that lies outside of the project. Raises ValueError."""
    return _find_outside[0](name) if _find_outside else None


def _from_outside(name: str, options: dict[str, Any]) -> Any:
    """Another process has not loaded the file of the class yet."""
    outside = class_outside(name)
    assert outside is not None, f"{name} was found in the process that sent it"
    return outside[1].model_validate(options)


class Scorer(StrictModel, ABC):
    """Options of a scorer and its score.

    needs  entries of the reference that the score requires.
    name   the scorer, as in `task.scorer.name`.
    """

    needs: ClassVar[tuple[str, ...]] = ("target",)

    name: str

    def __reduce__(self) -> Any:
        if type(self).__module__.startswith("tasks."):
            return super().__reduce__()
        return _from_outside, (self.name, self.model_dump())

    @model_validator(mode="before")
    @classmethod
    def _knows(cls, options: Any) -> Any:
        fields = cls.model_fields
        if isinstance(options, Mapping) and (
            unknown := [key for key in options if key not in fields]
        ):
            named = ", ".join(f"task.scorer.{key}" for key in unknown)
            raise ValueError(
                f"{named}: unknown; task.scorer.name={options.get('name')} takes "
                f"{', '.join(key for key in fields if key != 'name') or 'no options'}"
            )
        return options

    @property
    @abstractmethod
    def metric(self) -> str:
        """Name of the score."""

    @property
    def proportion(self) -> bool:
        """Is the score of a prompt 0 or 1?"""
        return True

    def score(self, reference: Reference, texts: Sequence[str]) -> Score:
        """Score the answers, one text per turn; the value is None if the reference lacks an entry
        of `needs`. Raises TaskError."""
        if any(reference.get(field) is None for field in self.needs):
            return Score(None)
        return self._score(reference, texts)

    def check_options(self) -> None:
        """Raise TaskError for invalid options."""

    def unscorable(self) -> str | None:
        """Why answers cannot be scored on this machine, in one line; None where they can."""
        return None

    @abstractmethod
    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        """Score the answers against a complete reference."""


class Nothing(Scorer):
    """No score: the data has no reference answers; an LLM judge may grade the answers later."""

    metric: ClassVar[str] = "none"
    proportion: ClassVar[bool] = False

    name: Literal["none"]

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        return Score(None)
