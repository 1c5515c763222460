"""What Hydra and OmegaConf refuse, in one line."""

from __future__ import annotations

import re

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from bench.config.errors import ConfigError, unknown_key
from results.store.reasons import one_line

CONFIG_ERRORS = (HydraException, OmegaConfBaseException, ValueError)


def format_hydra_error(error: Exception) -> ConfigError:
    """What Hydra or OmegaConf said about an override, in one line."""
    text = str(error)
    if isinstance(error, MissingMandatoryValue):
        key = error.full_key or text.splitlines()[0].rpartition(" ")[2]
        return ConfigError(f"{key}: missing; give {key}=VALUE")
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        options = (f"{group}={name}" for name in error.options or ())
        return ConfigError(unknown_key(f"{group}={option}", options, what="unknown"))
    return ConfigError(re.sub(r" See https://hydra\S+.*", "", one_line(text)))
