"""What the commands beside `python -m bench` have in common: one YAML of conf/, and one line for all that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf

from bench.config.errors import one_line
from bench.config.paths import CONF


def entry(name: str, run: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
    """The entry point of a command: Hydra composes conf/NAME.yaml with the command line, `run` gets plain data. A
    ValueError, and all of the project's own errors here are such, ends it in one line."""

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)
    @wraps(run)  # by which Hydra knows the command's name
    def main(config: DictConfig) -> None:
        try:
            run(OmegaConf.to_container(config, resolve=True))
        except ValueError as error:
            sys.exit(f"error: {one_line(error)}")

    return main
