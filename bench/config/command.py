"""What a command line asks for: its points, or reports; what a sweep may vary, and its scales."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from bench.config.errors import ConfigError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Settings


LENGTH, DEPTH = "draft.length", "drafter.depth"
EMBEDDED = "embedded"


def key_of(override: str) -> str:
    return override.partition("=")[0]


def with_base(overrides: Sequence[str], base: Sequence[str]) -> list[str]:
    """The overrides behind those of `base` whose keys they leave to it."""
    keys = set(map(key_of, overrides))
    return [*(line for line in base if key_of(line) not in keys), *overrides]


def follow_length(config: Mapping[str, Any], keys: Collection[str]) -> None:
    """Give a dynamic tree K levels where draft.length=K is among the keys given: drafter.depth,
    which counts the rounds behind the root's, becomes K - 1. A drafter.depth that was given
    stays."""
    drafter = config.get("drafter")
    length = config.get("draft", {}).get("length")
    if (
        isinstance(drafter, dict)
        and drafter.get("tree") == "dynamic"
        and "depth" in drafter
        and LENGTH in keys
        and DEPTH not in keys
        and isinstance(length, int)
    ):
        drafter["depth"] = length - 1


def check_effects(points: Sequence[Collection[str]], cells: Sequence[Cell]) -> None:
    """Raises ConfigError for a swept option of the drafter that decides nothing there, and for a
    tree's depth beside a draft length that it contradicts. `points`: the overrides of each cell."""
    for point, cell in zip(points, cells, strict=True):
        tree, length = cell.drafter.options.model_dump(), cell.draft.length
        keys = {key_of(line) for line in point}
        is_dynamic = tree.get("tree") == "dynamic"
        if is_dynamic and keys >= {LENGTH, DEPTH} and tree["depth"] != length - 1:
            raise ConfigError(
                f"{DEPTH}={tree['depth']} beside {LENGTH}={length}: a tree of K levels has "
                f"{DEPTH}=K-1; give {LENGTH} alone"
            )
    values: dict[str, dict[str, None]] = {}
    for point in points:
        for line in point:
            key, _, value = line.partition("=")
            values.setdefault(key, {})[value] = None
    for key, swept in values.items():
        option = "length" if key == LENGTH else key.removeprefix("drafter.")
        if len(swept) < 2 or option == key:
            continue
        if idle := next((cell for cell in cells if option in cell.drafter.options.idle), None):
            raise ConfigError(
                f"{key}={','.join(swept)}: drafter={idle.drafter.name} ignores it, for its "
                f"drafts have another shape ({idle.drafter.options.shaped_by}); sweep a key that "
                "it reads"
            )


def check_clock(settings: Settings, cells: Sequence[Cell]) -> None:
    """Raises ConfigError for options of the clock where it has nothing to do for them."""
    timed = max((cell.timed_prompts for cell in cells), default=0)
    if settings.fresh and not timed:
        raise ConfigError(
            "fresh=true: times the prompts again, and none is timed here; leave it out, or give "
            "timed=N without cost="
        )
    if (sessions := settings.sessions or 1) > max(timed, 1):
        raise ConfigError(
            f"sessions={sessions}: divides the timed prompts, which are {timed or 'none'} here; "
            f"give at most one session for each, or timed={sessions} and more"
        )


def edition(section: Mapping[str, Any], sweep: str, scale: str, keys: Collection[str]) -> list[str]:
    """A sweep's own overrides at a scale, without keys that the command gives. Raises
    ConfigError."""
    scales = section.get("scales") or {}
    if scale == EMBEDDED:
        return []
    if scale not in scales:
        others = ", ".join(f"scale={name}" for name in (EMBEDDED, *scales))
        raise ConfigError(
            f"scale={scale}: +sweep={sweep} does not have it, it has {others}; name models and "
            "task yourself: pair=NAME task=NAME"
        )
    return [line for line in scales[scale] if key_of(line) not in keys]


@dataclass(frozen=True)
class ComposedPoint:
    """One experiment point: the overrides that name it and its resolved configuration, plain data.

    `cell` and `settings` are that configuration, typed: both raise ConfigError. The options of a
    rule or drafter are typed by its class: `cell` imports torch, but only once what needs no torch
    was checked."""

    overrides: tuple[str, ...]
    config: dict[str, Any]

    @cached_property
    def cell(self) -> Cell:
        if "bench.config.cell" not in sys.modules:  # which imports torch
            from bench.config.schema import parsed_sections

            parsed_sections(self.config)
        from bench.config.cell import Cell

        cell = Cell.parsed(self.config)
        launch = self.config.get("launch") or {}
        is_plan = self.config.get("dry_run") and cell.engine.parallel == "tensor"
        # the others run on other machines, and what torchrun would start is not started yet
        if launch.get("name", "local") == "local" and not is_plan:
            cell.engine.check_device()
        cell.check()
        return cell

    @cached_property
    def settings(self) -> Settings:
        from bench.config.settings import Settings

        return Settings.from_config(self.config)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point that may be one this machine or the pair cannot run.

    cell     None where it is refused or absent.
    refused  why this machine cannot run the point.
    absent   which part of the pair, or which data file, the point needs but is not here.
    lacks    with `refused`: the file of the pair, pair.NAME, that the rule needs and that a command
             measures.
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

    points: list[ComposedPoint]
    overrides: list[str]
    sweep: str | None
    reports: tuple[str, ...]

    @property
    def cells(self) -> list[Cell]:
        """The cell of every point. Raises ConfigError."""
        return [point.cell for point in self.points]

    @property
    def labels(self) -> list[str]:
        """Name each point by the overrides in which they differ; a single one by its method and
        task."""
        points = [point.overrides for point in self.points]
        common = set(points[0]).intersection(*points)
        varying = [
            " ".join(line for line in overrides if line not in common) for overrides in points
        ]
        return [
            label or f"{cell.label} {cell.task.name}"
            for label, cell in zip(varying, self.cells, strict=True)
        ]

    @property
    def settings(self) -> Settings:
        """What the points share. Raises ConfigError."""
        first = self.points[0]
        # tasks may read other data
        keys = [key for key in type(first.settings).model_fields if key != "data"]
        for point, key in product(self.points, keys):
            if point.config.get(key) != first.config.get(key):
                lines = (line for line in point.overrides if re.match(rf"\+*{key}[=.]", line))
                raise ConfigError(
                    f"{next(lines, key)}: the points of a sweep share {key}; give one value, "
                    "or run the command once for each"
                )
        return first.settings

    def check_keys(self) -> None:
        """Raises ConfigError for a key that only reports read, beside points."""
        for line in self.overrides:
            key = key_of(line).lstrip("+")
            if key in ("pairs", "rules", "tasks", "output.archive") or (
                key == "scale" and self.sweep is None
            ):
                raise ConfigError(
                    f"{key}: read beside report=NAME alone; add it, or leave {key} out"
                )

    def only_point(self) -> ComposedPoint:
        """The point of a command that takes a single one. Raises ConfigError for several."""
        if len(self.points) != 1:
            raise ConfigError(
                "several values: this command takes one point; give one value for each key"
            )
        return self.points[0]
