"""What is not part of a point's identity: where results go and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from bench.config import tracking
from bench.config.cost_file import profile_of
from bench.config.errors import ConfigError, unknown_key
from bench.config.judge_options import Judge
from bench.config.launchers import LAUNCHERS, Launcher
from bench.config.schema import SECTIONS
from bench.config.section import Named, Section, choose, parse, validated
from bench.config.similarity_options import Similarity
from results.metrics.cost import Profile


class Folder(Section):
    dir: Path

    @field_validator("*", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if given == "":  # Path would take it for the checkout
            raise ValueError("is empty; give a folder (. for the checkout)")
        return given


class Output(Folder):
    """Where files are written; `keep`: a folder for those files of reports that are kept beside the code."""

    keep: Path | None = None


class Settings(Section):
    output: Output
    store: Folder
    data: Path
    summary: Literal["table", "json"]
    trace: Literal[True, False, "auto"]
    workers: int | None = Field(ge=1)
    quality_batch: int = Field(ge=1)
    replay: Literal["auto"] | float | tuple[float, ...] | None = None
    dry_run: bool
    verbose: bool = False
    fresh: bool = False
    judge: Judge
    similarity: Similarity
    tracker: Named[tracking.Tracker]
    launch: Named[Launcher]
    cost: Profile | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """The settings of a composed configuration; every key of it must be known. Raises ConfigError, one line."""
        layouts = {"report", "scale", "pairs", "sweep"}
        allowed = {*SECTIONS, *cls.model_fields, *layouts}
        for key in config:
            if key not in allowed:
                raise ConfigError(unknown_key(key, allowed))
        sections = {name: config[name] for name in cls.model_fields if name in config}
        sections |= {
            "output": parse(Output, config, "output"),
            "store": parse(Folder, config, "store"),
            "judge": parse(Judge, config, "judge"),
            "similarity": parse(Similarity, config, "similarity"),
            "tracker": choose(config, "tracker", tracking.TRACKERS.__getitem__, tracking.TRACKERS),
            "launch": choose(config, "launch", LAUNCHERS.__getitem__, LAUNCHERS),
            "cost": profile_of(config),
        }
        settings = validated(cls, sections, "")
        settings.judge.check()
        if settings.replay is not None and settings.replay != "auto" and not settings.values:
            raise ConfigError("replay=[]: no threshold; give replay=auto or a list such as replay=[0.8,0.9]")
        return settings

    @property
    def values(self) -> tuple[float, ...]:
        """The thresholds to replay at; empty where none are given."""
        if isinstance(self.replay, tuple):
            return self.replay
        return (self.replay,) if isinstance(self.replay, float) else ()
