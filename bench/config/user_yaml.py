"""Check a user's own folder of YAMLs before Hydra opens it: no file in it may run code, hang, or end in a traceback."""

from __future__ import annotations

from pathlib import Path

from bench.config.errors import ConfigError
from methods.user_yaml import read
from results.store.reasons import one_line


def check_folder(folder: Path) -> None:
    """Raises ConfigError as `check_file` for the first file that cannot be read."""
    for file in sorted(folder.rglob("*.yaml")):
        check_file(file)


def check_file(file: Path) -> None:
    """Raises ConfigError, naming the file, for one that `methods.user_yaml` does not read as a mapping."""
    try:
        found = read(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not YAML: {one_line(error)}") from error
    if found is not None and not isinstance(found, dict):
        kind = "list" if isinstance(found, list) else "single value"
        raise ConfigError(f"{file}: must hold `key: value` lines, not a {kind}")
