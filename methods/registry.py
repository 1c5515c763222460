"""Find a rule or a drafter by its class: `near_top` is `NearTop`, `model` is `ModelDrafter`. To add
one, add a class in a file of the folder; nothing is registered by hand. One outside of the project
is `file.py:Class` or `package.module:Class` (`methods.outside`)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from typing import Any

from methods import outside

BASES = {"rules": "Rule", "drafters": "Drafter"}
"""Folder of methods/ -> the class in its base.py that all rules or drafters are subclasses of."""


def name_of(option: type[Any]) -> str:
    """The name of a rule's or drafter's class on the command line."""
    return re.sub(r"(?<=.)(?=[A-Z])", "_", option.__name__.removesuffix("Drafter")).lower()


@cache
def classes(folder: str) -> dict[str, type[Any]]:
    """Name -> class of every rule or drafter, sorted. Modules and classes with a leading
    underscore, and abstract classes, are passed over. Raises TypeError for two of one name."""
    package, found = importlib.import_module(f"methods.{folder}"), dict[str, type[Any]]()
    base = base_of(folder)
    for module in (m.name for m in pkgutil.iter_modules(package.__path__) if m.name[0] != "_"):
        place = importlib.import_module(f"methods.{folder}.{module}")
        for option in vars(place).values():
            if (
                isinstance(option, type)
                and issubclass(option, base)
                and option.__module__ == place.__name__
                and not inspect.isabstract(option)
                and option.__name__[0] != "_"
            ):
                if (name := name_of(option)) in found:
                    raise TypeError(
                        f"methods/{folder} has two classes for {name}, in {place.__name__} and "
                        f"{found[name].__module__}: rename one"
                    )
                found[name] = option
    return dict(sorted(found.items()))


def names(folder: str) -> list[str]:
    """All names in a folder ("rules" or "drafters") and of installed packages, sorted."""
    return sorted({*classes(folder), *outside.installed(folder)})


def base_of(folder: str) -> type[Any]:
    """The class that all rules or drafters are subclasses of."""
    base: type[Any] = getattr(importlib.import_module(f"methods.{folder}.base"), BASES[folder])
    return base


def _find(folder: str, name: str) -> type[Any]:
    kind = folder[:-1]
    if outside.is_outside(name):
        option = outside.load(kind, name, base_of(folder))
        return _without_clash(folder, name, option)
    if name in outside.installed(folder):
        point = outside.installed(folder)[name]
        if name in classes(folder):
            raise outside.OutsideError(
                f"{kind}={name}: the installed {point.value} has the name of one of the project's; "
                f"give {kind}={point.value}"
            )
        return outside.from_entry_point(kind, point, base_of(folder))
    if name not in classes(folder):
        raise KeyError(f"{folder[:-1]}={name}: unknown; allowed: {', '.join(names(folder))}")
    return classes(folder)[name]


def _without_clash(folder: str, name: str, option: type[Any]) -> type[Any]:
    """The class, unless it has the name of one of the project's, as tables show it. Raises
    OutsideError."""
    title, shipped = name_of(option), classes(folder)
    if title in shipped and shipped[title] is not option:
        raise outside.OutsideError(
            f"{folder[:-1]}={name}: the project has a {folder[:-1]} {title}; rename the class"
        )
    return option


def title(folder: str, name: str) -> str:
    """The name that labels and folders have: of a class outside of the project that of the
    class."""
    return name_of(_find(folder, name)) if outside.is_outside(name) else name


def rule(name: str) -> type[Any]:
    """The class of a rule, one of `Rule`; its fields are the rule's options. Raises KeyError."""
    return _find("rules", name)


def drafter(name: str) -> type[Any]:
    """The class of a drafter, one of `Drafter`; its fields are its options. Raises KeyError."""
    return _find("drafters", name)
