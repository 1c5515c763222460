"""Find a drafter or a rule by the name of its file. Adding one is adding a file; nothing is registered by hand."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from methods.drafters.base import Drafter
from methods.rules.base import Rule

ROOMS = {"rules": Rule, "drafters": Drafter}


@cache
def names(room: str) -> list[str]:
    """All names of a room ("rules" or "drafters"), sorted."""
    package = importlib.import_module(f"methods.{room}")
    return sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name != "base" and m.name[0] != "_")


@cache
def _find(room: str, name: str) -> type:
    if name not in names(room):
        raise KeyError(f"{room[:-1]}={name}: unknown; there are {', '.join(names(room))}")
    module = importlib.import_module(f"methods.{room}.{name}")
    found = [c for c in vars(module).values()
             if isinstance(c, type) and issubclass(c, ROOMS[room]) and c.__module__ == module.__name__]
    if len(found) != 1:
        kind = ROOMS[room].__name__
        raise TypeError(f"methods/{room}/{name}.py must define exactly one {kind}, it defines {len(found)}")
    return found[0]


def rule(name: str) -> type[Rule]:
    """The rule class of methods/rules/<name>.py; its fields are the rule's options. Raises KeyError."""
    return _find("rules", name)


def drafter(name: str) -> type[Drafter]:
    """The drafter class of methods/drafters/<name>.py; its fields are the drafter's options. Raises KeyError."""
    return _find("drafters", name)
