"""Find a drafter or a rule by the name of its file. To add one, add a file; nothing is registered by hand."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.drafters.base import Drafter
    from methods.rules.base import Rule

BASES = {"rules": "Rule", "drafters": "Drafter"}
"""Folder of methods/ -> the class in its base.py that every other file subclasses once."""


HELPERS = {"base", "verification", "walk"}
"""Modules of these folders that define no rule or drafter; names with a leading underscore are skipped too."""


@cache
def names(folder: str) -> list[str]:
    """All names in a folder ("rules" or "drafters"), sorted."""
    package = importlib.import_module(f"methods.{folder}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__)
                  if m.name not in HELPERS and m.name[0] != "_")


@cache
def _find(folder: str, name: str) -> type[Any]:
    if name not in names(folder):
        raise KeyError(f"{folder[:-1]}={name}: unknown; allowed: {', '.join(names(folder))}")
    base = getattr(importlib.import_module(f"methods.{folder}.base"), BASES[folder])
    module = importlib.import_module(f"methods.{folder}.{name}")
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, base)
               and c.__module__ == module.__name__ and not inspect.isabstract(c)]
    if len(classes) != 1:
        raise TypeError(f"methods/{folder}/{name}.py must define exactly one {BASES[folder]}, not {len(classes)}")
    return classes[0]


def rule(name: str) -> type[Rule]:
    """The rule class of methods/rules/<name>.py; its fields are the rule's options. Raises KeyError."""
    return _find("rules", name)


def drafter(name: str) -> type[Drafter]:
    """The drafter class of methods/drafters/<name>.py; its fields are the drafter's options. Raises KeyError."""
    return _find("drafters", name)
