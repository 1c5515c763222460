"""Single overrides of a command line, and the values that they sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod

from hydra.core.override_parser.types import Override

from bench.config.errors import ConfigError

MOST_POINTS = 10_000
"""Composing so many points takes minutes."""


def line_of(override: Override) -> str:
    """The override as it was given."""
    assert override.input_line is not None  # the parser sets it
    return override.input_line


def first_line(override: Override) -> str:
    """The override with the first of its values, if it has several."""
    if not override.is_sweep_override():
        return line_of(override)
    return f"{override.get_key_element()}={next(override.sweep_string_iterator())}"


def check_number(overrides: Sequence[Override]) -> None:
    """Raises ConfigError for a sweep of more points than can be composed."""
    swept = [override for override in overrides if override.is_sweep_override()]
    number = prod(sum(1 for _ in islice(one.sweep_string_iterator(), MOST_POINTS + 1)) for one in swept)
    if number > MOST_POINTS:
        raise ConfigError(f"{' '.join(map(line_of, swept))}: more than {MOST_POINTS} points in one sweep; give fewer "
                          "values")


def check_values(sweep: Override) -> None:
    """Raises ConfigError where a sweep's values cannot be listed, or there are none."""
    if not sweep.is_discrete_sweep():
        raise ConfigError(f"{sweep.input_line}: only lists of values can be swept: KEY=a,b,c or KEY=range(1,9)")
    if next(sweep.sweep_string_iterator(), None) is None:
        raise ConfigError(f"{sweep.input_line}: the list of values is empty; give KEY=a,b,c, KEY=range(1,9), or a "
                          "KEY=glob(PATTERN) that a name fits")
