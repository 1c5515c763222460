"""Points that differ in plain values, or in an independent section, share one resolved configuration: a sweep or report
resolves its interpolations once."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from bench.config.points import as_dict

PLAIN = (str, int, float, bool, type(None))
NAMES = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
"""An interpolation that names a key from the root."""
OF_PATH = re.compile(r"\$\{project:[^${}]*\}")
"""An interpolation that names no key."""
BESIDE = re.compile(r"\$\{\.\w+\}")
"""An interpolation that names a key beside its own."""


class Patched:
    """Resolves configurations of points. Points that differ only in plain values are copies of one configuration with
    the values inserted. OmegaConf resolves all others: values that contain or are named by an interpolation, and values
    that replace more than a leaf."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, ...], tuple[set[str] | None, dict[str, Any]]] = {}
        self._resolved: dict[tuple[tuple[str, ...], tuple[str, ...]], bytes] = {}
        self._sections: dict[int, tuple[DictConfig, dict[str, Any] | None]] = {}

    def resolve(self, config: Callable[[Sequence[str]], DictConfig], structural: Sequence[str],
                values: Sequence[Override], sections: Mapping[str, DictConfig]) -> dict[str, Any]:
        """The plain data of `config(structural)` with these values set. `sections`: section -> its options, where one
        line of `structural`, `SECTION=NAME`, decides it and nothing else. Raises what OmegaConf raises, its errors of
        keys with the full key."""
        inserted: dict[str, dict[str, Any]] = {}
        for name, section in sections.items():
            rest = [line for line in structural if line.partition("=")[0] != name]
            is_changed = any(covers(name, value.key_or_group) for value in values)
            if is_changed or (alone := self._alone(section)) is None:
                continue
            if self._is_unnamed(name, config, rest, values):
                structural, inserted[name] = rest, deepcopy(alone)
        return self._resolve(config, structural, values) | inserted

    def _alone(self, section: DictConfig) -> dict[str, Any] | None:
        """A section resolved by itself; None where it names keys of others, or lacks a value."""
        if id(section) not in self._sections:
            raw = as_dict(section, resolve=False)
            inside = all("${" not in OF_PATH.sub("", BESIDE.sub("", text)) and text != "???" for text in _texts(raw))
            self._sections[id(section)] = section, as_dict(OmegaConf.create(raw)) if inside else None
        return self._sections[id(section)][1]

    def _is_unnamed(self, name: str, config: Callable[[Sequence[str]], DictConfig], rest: Sequence[str],
                    values: Sequence[Override]) -> bool:
        """Whether no interpolation in the rest of the configuration, or in a value, names this section."""
        named, by_values = self._named_by(config, rest)[0], named_keys([value.value() for value in values])
        return named is not None and by_values is not None and not any(
            covers(name, key) or covers(key, name) for key in named | by_values)

    def _named_by(self, config: Callable[[Sequence[str]], DictConfig],
                  structural: Sequence[str]) -> tuple[set[str] | None, dict[str, Any]]:
        """The keys that interpolations of `config(structural)` name, and its unresolved data."""
        group = tuple(structural)
        if group not in self._named:
            raw = as_dict(config(structural), resolve=False)
            self._named[group] = named_keys(raw), raw
        return self._named[group]

    def _resolve(self, config: Callable[[Sequence[str]], DictConfig], structural: Sequence[str],
                 values: Sequence[Override]) -> dict[str, Any]:
        named, raw = self._named_by(config, structural)
        by_values = named_keys([value.value() for value in values])
        known = None if named is None or by_values is None else named | by_values
        plain = [value for value in values if known is not None and is_plain(value, known, raw)]
        others = [value for value in values if value not in plain]
        if any(covers(other.key_or_group, override.key_or_group) for other in others for override in plain):
            plain, others = [], list(values)
        key = tuple(structural), tuple(str(override.input_line) for override in others)
        if key not in self._resolved:
            whole = config(structural)
            for override in others:
                try:
                    OmegaConf.update(whole, override.key_or_group, override.value(), merge=True)
                except (ConfigKeyError, ConfigAttributeError) as error:
                    error.full_key = error.full_key or override.key_or_group
                    raise
            self._resolved[key] = pickle.dumps(as_dict(whole))
        data: dict[str, Any] = pickle.loads(self._resolved[key])
        for override in plain:
            *path, last = override.key_or_group.split(".")
            section = data
            for name in path:
                section = section[name]
            section[last] = override.value()
        return data


def named_keys(raw: Any) -> set[str] | None:
    """The keys that interpolations in unresolved data name; None if one has another form."""
    named: set[str] = set()
    for text in _texts(raw):
        rest = OF_PATH.sub("", NAMES.sub("", text))
        if "${" in rest:
            return None
        named.update(NAMES.findall(text))
    return named


def is_plain(override: Override, named: Iterable[str], raw: Mapping[str, Any]) -> bool:
    """Whether a value may be inserted after the others are resolved: it replaces a leaf that no interpolation names."""
    value, key = override.value(), override.key_or_group
    if type(value) not in PLAIN or (isinstance(value, str) and ("${" in value or value == "???")):
        return False
    section: Any = raw
    for name in key.split("."):
        if not isinstance(section, Mapping) or name not in section:
            return False
        section = section[name]
    return not isinstance(section, Mapping) and section != "???" and not any(
        covers(key, name) or covers(name, key) for name in named)


def covers(key: str, other: str) -> bool:
    """Whether `other` is this key or below it."""
    return f"{other}.".startswith(f"{key}.")


def _texts(raw: Any) -> Iterator[str]:
    if isinstance(raw, str):
        yield raw
    elif isinstance(raw, Mapping | list):
        for value in raw.values() if isinstance(raw, Mapping) else raw:
            yield from _texts(value)
