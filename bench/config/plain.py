"""A configuration as plain data, mappings in mappings: keys set, joined and listed, interpolations
replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.config.errors import ConfigError, NotHere, unknown_key
from bench.config.paths import PROJECT

Data = dict[str, Any]
SCORER = "task.scorer."
"""Its keys depend on its name, which an override may choose; the scorer refuses those that it does
not have."""
REFERENCE = re.compile(r"\$\{(?:project:([^{}]*)|([^{}]*))\}")
"""Interpolations: a path in the checkout, a key, or a key beside this one (`.split`)."""


def has(config: Data, key: str) -> bool:
    """Whether the section of this key has it."""
    section: Any = config
    for name in key.split("."):
        if not isinstance(section, dict) or name not in section:
            return False
        section = section[name]
    return True


def leaves(section: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The full keys of all values in the sections of a configuration."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{key}.")
        elif above:
            yield f"{above}{key}"


def merge(into: Data, values: Mapping[str, Any]) -> Data:
    """Copy values into a mapping, mappings into mappings; anything else replaces what is there, but
    ??? does not."""
    for key, value in values.items():
        if isinstance(value, dict):
            below = into.get(key)
            into[key] = merge(below if isinstance(below, dict) else {}, value)
        elif value != "???" or key not in into:
            into[key] = list(value) if isinstance(value, list) else value
    return into


def put(
    section: Data, path: Sequence[str], value: Any, *, force: bool = False, above: str = ""
) -> None:
    """Set the value at a path of keys; a mapping is merged into one that is there. `above`: the
    section's own key, with a dot. Raises NotHere for a key that is not there, unless `force`."""
    name, *rest = path
    old: Any = section.get(name)
    is_open = not rest or isinstance(old, dict)
    force = force or above.startswith(SCORER)
    if not force and (name not in section or not is_open):
        full = f"{name}.{rest[0]}" if name in section else name
        raise NotHere(unknown_key(f"{above}{full}", [f"{above}{key}" for key in section]))
    if not is_open:
        old = section[name] = {}
    if rest:
        put(old, rest, value, force=force, above=f"{above}{name}.")
    elif isinstance(value, dict) and isinstance(old, dict):
        if old and not value:
            raise ConfigError(
                f"{above}{name}={{}}: changes nothing; give {above}{name}.KEY=VALUE, with one of "
                f"{', '.join(map(str, old))}"
            )
        for key, below in value.items():
            put(old, [key], below, force=force, above=f"{above}{name}.")
    else:
        section[name] = value


def resolved(value: Any, config: Data, at: tuple[Any, ...] = ()) -> Any:
    """The value at these keys of a configuration, with every interpolation replaced. Raises
    ConfigError for one that names nothing, NotHere for a value that is missing (???)."""
    if isinstance(value, dict):
        return {key: resolved(below, config, (*at, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [resolved(below, config, (*at, place)) for place, below in enumerate(value)]
    if value == "???":
        raise NotHere(f"{'.'.join(map(str, at))}: missing; give {'.'.join(map(str, at))}=VALUE")
    while isinstance(value, str) and (match := REFERENCE.search(value)):
        new = _named(match, config, at)
        value = new if match[0] == value else value.replace(match[0], str(new))
    return value


def _named(match: re.Match[str], config: Data, at: tuple[Any, ...]) -> Any:
    """What an interpolation stands for. Raises ConfigError."""
    path, name = match.groups()
    if path is not None:
        return str(PROJECT / path)
    keys = (*at[:-1], *name[1:].split(".")) if name.startswith(".") else tuple(name.split("."))
    new: Any = config
    for key in keys:
        if not isinstance(new, dict) or key not in new or keys == at:
            raise ConfigError(
                f"{'.'.join(map(str, at))}={match[0]}: names nothing; give a key, as in "
                "${output.dir}, or ${project:PATH}"
            )
        new = new[key]
    return resolved(new, config, keys)
