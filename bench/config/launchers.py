"""The options of each launcher (`launch=NAME`), which conf/launch/NAME.yaml explains."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from bench.config.errors import ConfigError
from bench.config.section import Section
from results.store.locks import check_across_hosts


class Launcher(Section):
    """The options of all launchers.

    parallel   most workers at once; None: the launcher's default.
    package    the package of the extra `cluster` that it needs; its workers may then run on several hosts.
    """

    package: ClassVar[str | None] = None
    parallel: int | None = Field(None, ge=1)

    @property
    def has_own_machines(self) -> bool:
        """Whether each worker has a whole machine, so that nothing runs beside a timed pass."""
        return False

    def check(self, name: str, store: Path) -> None:
        """Raises ConfigError for a missing package, StoreError for a store whose locks other hosts would not see."""
        if self.package is not None:
            if find_spec(self.package) is None:
                raise ConfigError(f"launch={name}: needs the package {self.package}: pip install -e .[cluster]")
            check_across_hosts(store)


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
    """Actors of a Ray cluster."""

    package: ClassVar[str | None] = "ray"
    address: str | None = None
    cpus: float = Field(1, gt=0)
    restarts: int = Field(3, ge=-1)


LAUNCHERS: dict[str, type[Launcher]] = {"local": Local, "slurm": Slurm, "ray": Ray}
