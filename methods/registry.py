"""Find a rule or a drafter by its class: `near_top` is `NearTop`, `model` is `ModelDrafter`. To add
one, add a class in a file of the folder; nothing is registered by hand."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.drafters.base import Drafter
    from methods.rules.base import Rule

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
    base = getattr(importlib.import_module(f"methods.{folder}.base"), BASES[folder])
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
    """All names in a folder ("rules" or "drafters"), sorted."""
    return list(classes(folder))


def _find(folder: str, name: str) -> type[Any]:
    if name not in classes(folder):
        raise KeyError(f"{folder[:-1]}={name}: unknown; allowed: {', '.join(names(folder))}")
    return classes(folder)[name]


def rule(name: str) -> type[Rule]:
    """The class of a rule; its fields are the rule's options. Raises KeyError."""
    return _find("rules", name)


def drafter(name: str) -> type[Drafter]:
    """The class of a drafter; its fields are the drafter's options. Raises KeyError."""
    return _find("drafters", name)
