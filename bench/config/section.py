"""How plain data becomes a typed section: validated once, with one clear line for what is wrong. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, SerializeAsAny, ValidationError, model_serializer

from bench.config.errors import ConfigError, format_validation, refuse_booleans, unknown_key
from bench.config.paths import CONF

Model = TypeVar("Model", bound=BaseModel)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Named(Section, Generic[Model]):
    """A choice by name with its own typed options; written as one flat mapping."""

    name: str
    options: SerializeAsAny[Model]

    @model_serializer(mode="wrap")
    def _flat(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        raw = handler(self)
        return {"name": raw["name"], **raw["options"]}

    def __reduce__(self) -> tuple[Any, ...]:
        """`Named[Rule]` is made at run time and has no place that a pickle could name."""
        return _named, (self.name, self.options)


def _named(name: str, options: Any) -> Named[Any]:
    return Named(name=name, options=options)


@contextmanager
def refusals(section: str, allowed: Iterable[str], prefix: str = "", given: Any = None) -> Iterator[None]:
    """Turn what pydantic refuses inside into a ConfigError, one line after `prefix`. `allowed`: the section's keys;
    `given`: the plain data, if there is any."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError(prefix + format_validation(error, section, allowed, given)) from error


def validated(model: type[Model], data: Mapping[str, Any], section: str) -> Model:
    """Data -> typed section, where numbers are not given as booleans. Raises ConfigError naming the full keys."""
    with refusals(section, model.model_fields, given=data):
        found = model.model_validate(dict(data))
    refuse_booleans(data, found, section)
    return found


def parse(model: type[Model], config: Mapping[str, Any], section: str) -> Model:
    return validated(model, _mapping(config, section, model.model_fields), section)


def check_known(key: str, name: Any, names: Iterable[str]) -> None:
    """Raises ConfigError for `key=name` where `name` is none of `names`."""
    allowed = list(names)
    if name not in allowed:
        raise ConfigError(unknown_key(f"{key}={name}", (f"{key}={choice}" for choice in allowed), what="unknown"))


def choose(config: Mapping[str, Any], section: str, options_of: Callable[[str], type[Model]],
           names: Iterable[str]) -> Named[Model]:
    """A section that is a choice by name: its name and its typed options."""
    given = dict(_mapping(config, section))
    name = given.pop("name", None)
    check_known(f"{section}.name", name, names)
    return Named(name=name, options=validated(options_of(name), given, section))


def _mapping(config: Mapping[str, Any], section: str, keys: Iterable[str] = ()) -> Mapping[str, Any]:
    given = config.get(section)
    if not isinstance(given, Mapping):
        choices = [f"{section}={file.stem}" for file in sorted((CONF / section).glob("*.yaml"))]
        allowed = ", ".join(choices or [f"{section}.{key}=VALUE" for key in keys])
        raise ConfigError(f"{section}={given}: must be a section, not a single value; allowed: {allowed}")
    return given
