"""Rules, drafters and scorers that lie outside of this project: `package.module:Class`,
`file.py:Class`, and the names of installed entry points (groups `leeway.rules`, `leeway.drafters`
and `leeway.scorers`)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

MARK = ":"


class OutsideError(ValueError):
    """A class outside of the project cannot be used. The message is one line."""


def is_outside(name: str) -> bool:
    """Whether a name says where a class lies, rather than being one of the project's."""
    return MARK in name


def absolute(name: str) -> str:
    """The name with the path of its file made absolute: other processes have other folders."""
    place, _, option = name.rpartition(MARK)
    return f"{Path(place).expanduser().resolve()}{MARK}{option}" if _is_file(place) else name


def short(name: str) -> str:
    """`floor:Floor` of `/home/me/floor.py:Floor`: the same on every machine."""
    place, _, option = name.rpartition(MARK)
    return f"{Path(place).stem if _is_file(place) else place}{MARK}{option}"


def load(kind: str, name: str, base: type[Any]) -> type[Any]:
    """The class of this name, a subclass of `base`; `kind` is what the message calls it. Raises
    OutsideError."""
    place, _, wanted = name.rpartition(MARK)
    module = _from_file(kind, name, Path(place)) if _is_file(place) else _module(kind, name, place)
    option = getattr(module, wanted, None)
    if not _fits(option, base):
        there = [title for title, value in vars(module).items() if _is_own(value, base, module)]
        known = f"it has {', '.join(there)}" if there else f"it has no subclass of {base.__name__}"
        raise OutsideError(f"{kind}={name}: no {kind} {wanted!r} in {place}; {known}")
    return checked(kind, name, option)


def checked(kind: str, name: str, option: Any) -> type[Any]:
    """The class, unless a method is missing. Raises OutsideError."""
    if inspect.isabstract(option):
        missing = ", ".join(sorted(option.__abstractmethods__))
        raise OutsideError(f"{kind}={name}: {option.__name__} lacks {missing}; define it")
    return option  # type: ignore[no-any-return]


@cache
def installed(folder: str) -> dict[str, EntryPoint]:
    """Name -> entry point of the installed packages; nothing is imported."""
    return {point.name: point for point in entry_points(group=f"leeway.{folder}")}


def from_entry_point(kind: str, point: EntryPoint, base: type[Any]) -> type[Any]:
    """The class that an installed package offers. Raises OutsideError."""
    try:
        option = point.load()
    except Exception as error:  # whatever a package of somebody's raises
        raise OutsideError(_failed(kind, point.name, point.value, error)) from error
    if not _fits(option, base):
        raise OutsideError(f"{kind}={point.name}: {point.value} is no subclass of {base.__name__}")
    return checked(kind, point.name, option)


def _is_file(place: str) -> bool:
    return place.endswith(".py")


def _fits(option: Any, base: type[Any]) -> bool:
    return isinstance(option, type) and issubclass(option, base)


def _is_own(value: Any, base: type[Any], module: ModuleType) -> bool:
    return _fits(value, base) and value.__module__ == module.__name__


def _module(kind: str, name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except Exception as error:  # whatever a module of somebody's raises
        raise OutsideError(_failed(kind, name, place, error)) from error


def _from_file(kind: str, name: str, file: Path) -> ModuleType:
    """The module of a file, which may import its neighbours."""
    if not file.is_file():
        raise OutsideError(f"{kind}={name}: no file {file}")
    digits = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    title = f"leeway_outside_{digits}"
    if title in sys.modules:  # read once, whatever it is named for
        return sys.modules[title]
    spec = importlib.util.spec_from_file_location(title, file)
    if spec is None or spec.loader is None:
        raise OutsideError(f"{kind}={name}: {file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    if (folder := str(file.resolve().parent)) not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a file of somebody's raises
        del sys.modules[title]
        raise OutsideError(_failed(kind, name, str(file), error)) from error
    return module


def _failed(kind: str, name: str, place: str, error: Exception) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{kind}={name}: {place} cannot be imported: {reason}"
