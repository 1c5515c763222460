"""Everything taken from inside Hydra, which only hydra-core 1.3 promises: its own command line, session and sweeper."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hydra import main as hydra_main
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc

from bench.config.errors import ConfigError
from bench.config.paths import CONF, PROJECT
from bench.config.user_yaml import check_folder
from results.store.redaction import interpolated

BASIC = "hydra._internal.core_plugins.basic_"
"""Prefix of the target of Hydra's own sweeper."""


_OPTION = re.compile(r"--[A-Za-z_][\w./@]*=")
"""`--rule.theta=0.9`, as an agent of W&B's sweeps gives an override."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line as Hydra reads it.

    name   conf/NAME.yaml is what it configures.
    argv   its words.
    flags  Hydra's own flags (-m, --cfg, --info, …) and the overrides.
    """

    name: str
    argv: tuple[str, ...]
    flags: argparse.Namespace

    @classmethod
    def parse(cls, name: str, argv: Sequence[str]) -> CommandLine:
        """Flags and overrides may come in any order. Raises ConfigError."""
        parser = get_args_parser()

        def refuse(message: str) -> NoReturn:
            raise ConfigError(f"{message}; see --help")

        parser.error = refuse  # type: ignore[method-assign]  # in place of printing the usage and exiting
        own = [name for action in parser._actions for name in action.option_strings]
        argv = [word[2:] if _OPTION.match(word) and not any(name.startswith(word.partition("=")[0]) for name in own)
                else word for word in argv]
        flags = parser.parse_intermixed_args(list(argv))
        for flag, value in (("--config-name", flags.config_name), ("--config-path", flags.config_path)):
            if value is not None:
                refuse(f"{flag} {value}: conf/{name}.yaml is what this command reads; give --config-dir FOLDER for "
                       "further YAMLs")
        return cls(name, tuple(argv), flags)

    @property
    def asks_hydra(self) -> bool:
        """Whether the flags ask for something that Hydra prints itself, so that nothing runs."""
        flags = self.flags
        return bool(flags.cfg or flags.info or flags.hydra_help or flags.shell_completion or flags.experimental_rerun)

    def run_hydra(self) -> None:
        """Hand the command line over to Hydra, for its informative flags."""
        register_resolvers()
        overrides = self.flags.overrides
        own, sys.argv = sys.argv, [sys.argv[0], *(word for word in self.argv if word not in overrides), *overrides]
        try:  # Hydra reads sys.argv itself, and wants its overrides in one piece
            hydra_main(config_path=str(CONF), config_name=self.name, version_base="1.3")(lambda _: None)()
        finally:
            sys.argv = own


class _Repository(ConfigRepository):
    """The YAMLs, each read once. Hydra copies its repository for every composition and reads all of them again."""

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._read: dict[str, ConfigResult | None] = {}
        self._is_group: dict[str, bool] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            self._read[config_path] = super().load_config(config_path)
        return self._read[config_path]

    def group_exists(self, config_path: str) -> bool:
        if config_path not in self._is_group:
            self._is_group[config_path] = super().group_exists(config_path)
        return self._is_group[config_path]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Repository:
        """A copy whose search path may be changed; until then it shares what was read."""
        other = copy(self)
        other.sources = list(self.sources)
        return other


@contextmanager
def session(config_dir: str | None = None) -> Iterator[ConfigLoaderImpl]:
    """Hydra over conf/, ready to compose; `config_dir` is a user's own folder of further YAMLs. Raises ConfigError."""
    register_resolvers()
    version.setbase("1.3")
    search_path = create_config_search_path(str(CONF))
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(f"--config-dir {config_dir}: no such folder; give one with files like those of conf/")
        check_folder(Path(config_dir))
        search_path.prepend("command-line", Path(config_dir).absolute().as_uri(), SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    Hydra.create_main_hydra2("bench", search_path)
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)  # the only one that Hydra has
    loader.repository = _Repository(loader.config_search_path)
    try:
        yield loader
    finally:
        GlobalHydra.instance().clear()


def compose_option(loader: ConfigLoaderImpl, name: str) -> DictConfig:
    """conf/NAME.yaml with its defaults, but without Hydra's own configuration. Raises what Hydra raises."""
    defaults = create_defaults_list(loader.repository, name, [], prepend_hydra=False, skip_missing=False)
    return loader._compose_config_from_defaults_list(defaults.defaults, loader.repository)


def combinations(overrides: list[Override]) -> list[list[str]]:
    """The points of a sweep, each as its overrides, in the order of Hydra's basic sweeper."""
    [batch] = BasicSweeper.split_arguments(overrides, None)
    return batch


def register_resolvers() -> None:
    """Make `${project:PATH}` in YAMLs stand for a path in the checkout; what `${oc.env:NAME}` reads is
    never written."""
    def read(name: str, *default: str | None) -> str | None:
        interpolated(name)
        return oc.env(name, *default)

    OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)
    OmegaConf.register_new_resolver("oc.env", read, replace=True)
