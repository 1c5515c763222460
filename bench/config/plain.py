"""Configurations as plain data: YAMLs read once and joined as dictionaries, values set, interpolations replaced.

What is `Unusual` here is left to Hydra and OmegaConf, which also say what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.utils import setup_globals
from omegaconf import OmegaConf
from omegaconf.resolvers import oc

from bench.config.errors import NotHere, unknown_key
from bench.config.paths import PROJECT
from methods.user_yaml import RESOLVERS
from results.store.errors import interpolated

Data = dict[str, Any]
Choices = dict[str, str | None]
"""Group -> the option chosen."""
SCORER = "task.scorer."
"""Its keys depend on its name, which an override may choose; the scorer refuses those that it does not have."""
PACKAGE = re.compile(r"\s*#\s*@package\s+(\S+)")
REFERENCE = re.compile(r"\$\{(?:(\.?[A-Za-z_]\w*(?:\.\w+)*)|project:([\w./-]*))\}")
"""The interpolations of conf/: a key, a key beside this one (`.split`), a path in the checkout."""


class Unusual(Exception):
    """What only Hydra or OmegaConf composes."""


class _Loader(yaml.CSafeLoader):
    yaml_implicit_resolvers = RESOLVERS


class Yamls:
    """The YAMLs of folders like conf/; of two with one name that of the first folder counts."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._groups: dict[str, list[str] | None] = {}
        self._files: dict[str, tuple[Data, list[Any], bool]] = {}
        self._options: dict[str, tuple[Data, Choices]] = {}

    def get_group_options(self, group: str, results_filter: object = None) -> list[str] | None:
        """The YAMLs of a group, sorted; None for what is no group. Hydra's glob() asks by this name."""
        if group not in self._groups:
            found = [folder / group for folder in self._folders if (folder / group).is_dir()]
            names = sorted({file.stem for folder in found for file in folder.glob("*.yaml")})
            self._groups[group] = names if found else None
        return self._groups[group]

    def _read(self, name: str) -> tuple[Data, list[Any], bool]:
        """Of NAME.yaml its values, its defaults list, and whether the values belong to the root."""
        if name not in self._files:
            file = next((file for folder in self._folders if (file := folder / f"{name}.yaml").is_file()), None)
            text = "" if file is None else file.read_text(encoding="utf-8")
            package = PACKAGE.match(text)
            if file is None or (package and package[1] != "_global_"):
                raise Unusual
            own = yaml.load(text, _Loader) or {}
            defaults = own.pop("defaults", [])
            self._files[name] = own, defaults if "_self_" in defaults else [*defaults, "_self_"], package is not None
        return self._files[name]

    def _option(self, group: str, name: str, *within: str) -> tuple[Data, Choices]:
        """A YAML of a group joined with those that it builds on, and what their `override /GROUP: NAME` choose."""
        path = f"{group}/{name}"
        if path in within:
            raise Unusual
        if path not in self._options:
            own, defaults, is_global = self._read(path)
            data, chosen = Data(), Choices()
            for entry in defaults:
                if entry == "_self_":
                    merge(data, own if is_global else {group: own})
                elif isinstance(entry, str) and entry.isidentifier():
                    inherited, choices = self._option(group, entry, path, *within)
                    merge(data, inherited)
                    chosen |= choices
                else:
                    chosen |= _choice(entry, "override /")
            self._options[path] = data, chosen
        return self._options[path]

    def joined(self, name: str, structural: Sequence[Override]) -> tuple[Data, Choices]:
        """NAME.yaml with the options that `structural` choose, and all choices. Of those of one group that of the
        command line wins, then that of the last YAML. Raises Unusual."""
        own, listed, _ = self._read(name)
        defaults = [entry for entry in listed if "override hydra/" not in str(entry)]
        choices: Choices = {}
        for one in structural:
            group, option = one.key_or_group, one.value()
            is_new = not any(group in entry for entry in defaults if isinstance(entry, dict))
            if (one.package is not None or self.get_group_options(group) is None or not isinstance(option, str)
                    or one.type is not (OverrideType.ADD if is_new else OverrideType.CHANGE)):
                raise Unusual
            choices[group] = option
            defaults += [{group: option}] if is_new else []
        parts, groups = [], set()
        for entry in reversed(defaults):
            if entry == "_self_":
                parts.append(own)
                continue
            [(group, default)] = _choice(entry).items()
            groups.add(group)
            if (option := choices.setdefault(group, default)) is not None:
                data, chosen = self._option(group, option)
                choices = chosen | choices
                parts.append(data)
        if choices.keys() - groups:
            raise Unusual
        config: Data = {}
        for part in reversed(parts):
            merge(config, part)
        return config, choices


def _choice(entry: Any, prefix: str = "") -> Choices:
    """`GROUP: NAME` of a defaults list, as a choice; its key begins with the prefix."""
    if not isinstance(entry, dict) or len(entry) != 1:
        raise Unusual
    [(group, option)] = entry.items()
    if not re.fullmatch(f"{prefix}[a-z]+", group) or not isinstance(option, str | None):
        raise Unusual
    return {group.removeprefix(prefix): option}


def merge(into: Data, values: Mapping[str, Any]) -> Data:
    """Copy values into a mapping, mappings into mappings; anything else replaces what is there, but ??? does not."""
    for key, value in values.items():
        if isinstance(value, dict):
            below = into.get(key)
            into[key] = merge(below if isinstance(below, dict) else {}, value)
        elif value != "???" or key not in into:
            into[key] = list(value) if isinstance(value, list) else value
    return into


def put(section: Any, path: Sequence[str], value: Any, *, force: bool = False, above: str = "") -> None:
    """Set the value at a path of keys; a mapping is merged into one that is there. `above`: the section's own key, with
    a dot. Raises NotHere for a key that is not there, unless `force`."""
    name, *rest = path
    is_list = isinstance(section, list)
    known = list(map(str, range(len(section)))) if is_list else list(section)
    at: Any = int(name) if is_list and name in known else name
    old = section[at] if name in known else None
    is_open = not rest or isinstance(old, dict | list)
    force = (force or above.startswith(SCORER)) and not is_list
    if not force and (name not in known or not is_open):
        full = f"{name}.{rest[0]}" if name in known else name
        raise NotHere(unknown_key(f"{above}{full}", [f"{above}{one}" for one in known]))
    if not is_open:
        old = section[at] = {}
    if rest:
        put(old, rest, value, force=force, above=f"{above}{name}.")
    elif isinstance(value, dict) and isinstance(old, dict):
        for below, one in value.items():
            put(old, [below], one, force=force, above=f"{above}{name}.")
    else:
        section[at] = value


def resolved(config: Data) -> Data:
    """A copy with every interpolation replaced. Raises what OmegaConf raises for one that names nothing, and for a
    value that is missing (???)."""
    try:
        copy: Data = _resolved(config, config, ())
    except (Unusual, LookupError, TypeError, RecursionError):
        register_resolvers()
        plain = OmegaConf.to_container(OmegaConf.create(config), resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}
    return copy


def _resolved(value: Any, config: Data, at: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(below, config, (*at, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [_resolved(below, config, (*at, place)) for place, below in enumerate(value)]
    if value == "???" or (isinstance(value, str) and "\\$" in value):
        raise Unusual
    while isinstance(value, str) and (found := REFERENCE.search(value)):
        name, path = found.groups()
        new = str(PROJECT / path) if name is None else _named(name, config, at)
        value = new if found[0] == value else value.replace(found[0], str(new))
    if isinstance(value, str) and "${" in value:
        raise Unusual
    return value


def _named(name: str, config: Data, at: tuple[Any, ...]) -> Any:
    """The value of a key, which a leading dot marks as one beside the value `at`."""
    keys = (*at[:-1], *name[1:].split(".")) if name.startswith(".") else tuple(name.split("."))
    found: Any = config
    for key in keys:
        found = found[key]
    return _resolved(found, config, keys)


def register_resolvers() -> None:
    """Teach OmegaConf Hydra's interpolations, and that `${project:PATH}` is a path in the checkout; what
    `${oc.env:NAME}` reads is never written."""
    def read(name: str, *default: str | None) -> str | None:
        interpolated(name)
        return oc.env(name, *default)

    setup_globals()
    OmegaConf.register_new_resolver("project", lambda path: str(PROJECT / path), replace=True)
    OmegaConf.register_new_resolver("oc.env", read, replace=True)
