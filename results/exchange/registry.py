"""Find a converter by the name of its file. To add a converter, add a file; there is no list to extend."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from results.exchange.base import Converter

HELPERS = {"acceptance", "base", "imported", "imported_cells", "lines", "measured", "plausible", "registry"}
"""Modules of this folder that define no converter."""


@cache
def names() -> list[str]:
    """All formats, sorted."""
    package = importlib.import_module("results.exchange")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name not in HELPERS)


@cache
def converter(name: str) -> Converter:
    """The converter of results/exchange/<name>.py. Raises KeyError for an unknown name, TypeError for a file that does
    not define exactly one."""
    if name not in names():
        raise KeyError(f"{name}: no such format; there are {', '.join(names())}")
    module = importlib.import_module(f"results.exchange.{name}")
    classes = [var for var in vars(module).values()
               if isinstance(var, type) and issubclass(var, Converter) and var.__module__ == module.__name__]
    if len(classes) != 1:
        raise TypeError(f"results/exchange/{name}.py must define exactly one Converter, not {len(classes)}")
    made: Converter = classes[0]()
    return made
