"""What a command line asks for: its points, or reports; and a point that may be one that cannot run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.config.errors import ConfigError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Point
    from bench.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that may be one this machine or the pair cannot run.

    cell     None where it is refused or absent.
    refused  why this machine cannot run the point.
    absent   which part of the pair, or which data file, the point needs but is not here.
    lacks    with `refused`: the file of the pair, pair.NAME, that the rule needs and that a command measures.
    """

    cell: Cell | None
    refused: str = ""
    absent: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """What a command line asks for.

    points     every point, in the order of the sweep; none for a report, which names its own.
    overrides  what was given besides report=.
    sweep      the name given as +sweep=NAME.
    reports    the names given as report=NAME or report=[NAME,NAME]; none for points.
    """

    points: list[Point]
    overrides: list[str]
    sweep: str | None
    reports: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]:
        """The cell of every point. Raises ConfigError."""
        return [point.cell for point in self.points]

    @property
    def labels(self) -> list[str]:
        """Name each point by the overrides in which they differ; a single one by its method and task."""
        points = [point.overrides for point in self.points]
        common = set(points[0]).intersection(*points)
        varying = [" ".join(line for line in overrides if line not in common) for overrides in points]
        return [own or f"{cell.label} {cell.task.name}" for own, cell in zip(varying, self.cells, strict=True)]

    @property
    def settings(self) -> Settings:
        """What the points share. Raises ConfigError."""
        first = self.points[0]
        for point in self.points:
            for key in type(first.settings).model_fields:
                if key != "data" and point.config.get(key) != first.config.get(key):  # tasks may read other data
                    given = (one for one in point.overrides if one.lstrip("+").startswith((f"{key}=", f"{key}.")))
                    raise ConfigError(f"{next(given, key)}: the points of a sweep share {key}; give one value, or run "
                                      "the command once for each")
        return first.settings

    def only_point(self) -> Point:
        """The point of a command that takes a single one. Raises ConfigError for several."""
        if len(self.points) != 1:
            raise ConfigError("several values: this command takes one point; give one value for each key")
        return self.points[0]
