"""What is not part of a point's identity: where results go, how they are shown, judged, compared
and tracked, and where groups of cells run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from bench.config.cost_file import profile_of
from bench.config.errors import ConfigError, unknown_key
from bench.config.schema import SECTIONS
from bench.config.section import Named, Section, parse
from results.metrics.cost import Profile
from results.store.errors import one_line
from results.store.sample import Opponent
from tasks.base import ControlTokens, LocalFile, TaskError
from tasks.dataset import answers
from tasks.judge_prompts import JudgePrompts, as_text, is_remote


def key_in(variable: str, option: str) -> str:
    """The key in an environment variable that the option names, empty where there is none. Raises
    ConfigError, which does not show it."""
    # a file read into a variable ends in a line break
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"{option}={variable}: the key in this environment variable has a "
            "character that is not printable ASCII; set it again"
        )
    return key


class JudgeOptions(Section):
    """The options of conf/judge/default.yaml."""

    base_url: str | None = Field(pattern="^https?://")
    model: str | None
    key_env: str
    prompts: str | None
    references: LocalFile | None
    language_penalty: bool | None
    against: Opponent | None
    control_tokens: ControlTokens = "refuse"
    temperature: float = Field(ge=0)
    max_tokens: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    retries: int = Field(ge=0)
    wait_s: float = Field(ge=0)

    def check(self) -> None:
        """Raises ConfigError for what is missing or cannot be used, before anything is decoded."""
        if self.base_url is None:
            return
        if self.model is None:
            raise ConfigError(
                "judge.model: missing; give the name by which judge.base_url knows its model"
            )
        self.key()
        self._check_files()

    def key(self) -> str:
        """The key, empty where there is none. Raises ConfigError, which does not show it."""
        return key_in(self.key_env, "judge.key_env")

    def _check_files(self) -> None:
        """What lies on this machine; what has to be fetched is fetched when something is judged."""
        if self.prompts is not None and not is_remote(self.prompts):
            try:
                JudgePrompts(self.prompts)
            except TaskError as error:
                raise ConfigError(one_line(error)) from error
        if self.references is not None:
            key = f"judge.references={self.references}: "
            if not self.references.is_file():
                raise ConfigError(f"{key}no such file; give JSONL in FastChat's answer format")
            try:
                answers(self.references, "judge.references")
            except TaskError as error:
                text = one_line(error).removeprefix(key).removeprefix(f"{self.references}, ")
                raise ConfigError(f"{key}{text}") from error

    def asked(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of a request."""
        said = [
            {
                "role": role,
                "content": as_text(content) if self.control_tokens == "text" else content,
            }
            for role, content in messages
            if content.strip()
        ]
        return {
            "model": self.model,
            "messages": said,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }


class Similarity(Section):
    """The options of conf/similarity/default.yaml."""

    sentence: str | None
    entailment: str | None
    bertscore: str | None
    bertscore_layer: int | None = Field(ge=0)
    positions: int = Field(ge=1)

    @field_validator("sentence", "entailment", "bertscore")
    @classmethod
    def _is_source(cls, source: str | None) -> str | None:
        """A folder that is there, or what can be a name on the hub."""
        if source is None or Path(source).is_dir():
            return source
        if source.startswith((".", "/", "~")) or len(Path(source).parts) != 2:
            raise ValueError("no such folder; give a folder or a hub name org/model")
        return source

    def models(self, measures: tuple[str, ...]) -> dict[str, str]:
        """Measure -> model of those that are given."""
        return {name: getattr(self, name) for name in measures if getattr(self, name) is not None}


class Tracker(Section):
    """The options of a tracker."""


class NoTracker(Tracker):
    """Results stay in the store."""


class Wandb(Tracker):
    """Weights & Biases: conf/tracker/wandb.yaml explains every field."""

    project: str = Field("leeway", min_length=1)
    timeout: float = Field(60, gt=0)
    entity: str | None = None


TRACKERS: dict[str, type[Tracker]] = {"none": NoTracker, "wandb": Wandb}


class Launcher(Section):
    """The options of all launchers.

    parallel   most workers at once; None: the launcher's default.
    package    the package of the extra `cluster` that it needs; its workers may then run on several
               hosts.
    """

    package: ClassVar[str | None] = None
    parallel: int | None = Field(None, ge=1)

    @property
    def has_own_machines(self) -> bool:
        """Whether each worker has a whole machine, so that nothing runs beside a timed pass."""
        return False

    def check(self, name: str) -> None:
        """Raises ConfigError for a missing package."""
        if self.package is not None and find_spec(self.package) is None:
            raise ConfigError(
                f"launch={name}: needs the package {self.package}: pip install -e .[cluster]"
            )


class Local(Launcher):
    """Processes on this machine."""


class Slurm(Launcher):
    """Tasks of job arrays."""

    package: ClassVar[str | None] = "submitit"
    logs: Path
    minutes: int = Field(240, ge=1)
    requeues: int = Field(20, ge=0)
    cpus: int = Field(1, ge=1)
    memory_gb: int | None = Field(None, ge=1)
    exclusive: bool = False
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    setup: tuple[str, ...] = ()
    sbatch: Mapping[str, str | int | bool] = {}

    @property
    def has_own_machines(self) -> bool:
        return self.exclusive


class Ray(Launcher):
    """Tasks of a Ray cluster."""

    package: ClassVar[str | None] = "ray"
    address: str | None = None
    cpus: float = Field(1, gt=0)
    restarts: int = Field(3, ge=-1)


LAUNCHERS: dict[str, type[Launcher]] = {"local": Local, "slurm": Slurm, "ray": Ray}


class Folder(Section):
    dir: Path

    @field_validator("*", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if value == "":  # Path would take it for the checkout
            raise ValueError("is empty; give a folder (. for the checkout)")
        return value


class OutputFolders(Folder):
    """Where files are written; `archive`: a folder for those files of reports that are kept beside
    the code."""

    archive: Path | None = None


class Settings(Section):
    output: OutputFolders
    store: Folder
    data: Path
    summary: Literal["table", "json"]
    trace: Literal[True, False, "auto"]
    score: Literal["now", "later"]
    steps: Literal["now", "later"] = "later"
    workers: int | None = Field(ge=1)
    quality_batch: int = Field(ge=1)
    machine: str | None = Field(None, pattern=r"^[1-9]\d*x\d+(\.\d+)?$")
    dry_run: bool
    rehearse: bool = False
    verbose: bool = False
    fresh: bool = False
    sessions: int | None = Field(None, ge=1)
    sessions_gap_s: float = Field(600, ge=0, le=86400)
    judge: JudgeOptions
    similarity: Similarity
    tracker: Named[Tracker]
    launch: Named[Launcher]
    cost: Profile | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """The settings of a composed configuration; every key of it must be known. Raises
        ConfigError, one line."""
        layouts = {"report", "scale", "pairs", "rules", "tasks", "sweep"}
        allowed = {*SECTIONS, *cls.model_fields, *layouts}
        for key in config:
            if key not in allowed:
                raise ConfigError(unknown_key(key, allowed))
        sections = {name: config[name] for name in cls.model_fields if name in config}
        sections |= {
            "output": parse(OutputFolders, config, "output"),
            "store": parse(Folder, config, "store"),
            "judge": parse(JudgeOptions, config, "judge"),
            "similarity": parse(Similarity, config, "similarity"),
            "tracker": parse(TRACKERS.__getitem__, config, "tracker", TRACKERS),
            "launch": parse(LAUNCHERS.__getitem__, config, "launch", LAUNCHERS),
            "cost": profile_of(config),
        }
        settings = parse(cls, sections, "")
        settings.judge.check()
        return settings
