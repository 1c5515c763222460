"""How plain data becomes a typed section: validated once, with one clear line for what is wrong.
Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

from pydantic import BaseModel, ConfigDict, SerializeAsAny, ValidationError, model_serializer

from bench.config.errors import ConfigError, format_validation, refuse_booleans, unknown_key
from bench.config.paths import CONF
from methods import outside, registry

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
        if not outside.is_outside(self.name):
            return _named, (self.name, self.options)
        bases = {base.__name__ for base in type(self.options).__mro__}
        folder = next(folder for folder, base in registry.BASES.items() if base in bases)
        return _from_outside, (folder, self.name, self.options.model_dump())


def _named(name: str, options: Any) -> Named[Any]:
    return Named(name=name, options=options)


def _from_outside(folder: str, name: str, options: dict[str, Any]) -> Named[Any]:
    """Another process has not loaded the file of the class yet."""
    find = registry.rule if folder == "rules" else registry.drafter
    return Named(name=name, options=find(name).model_validate(options))


@contextmanager
def refusals(
    section: str, allowed: Iterable[str], prefix: str = "", plain: Any = None
) -> Iterator[None]:
    """Turn what pydantic refuses inside into a ConfigError, one line after `prefix`. `allowed`: the
    section's keys; `plain`: its plain data, if there is any."""
    try:
        yield
    except ValidationError as error:
        raise ConfigError(prefix + format_validation(error, section, allowed, plain)) from error


def check_known(key: str, name: Any, names: Iterable[str]) -> None:
    """Raises ConfigError for `key=name` where `name` is none of `names`."""
    allowed = list(names)
    if name not in allowed:
        raise ConfigError(
            unknown_key(f"{key}={name}", (f"{key}={choice}" for choice in allowed), what="unknown")
        )


@overload
def parse(model: type[Model], config: Mapping[str, Any], section: str) -> Model: ...
@overload
def parse(
    model: Callable[[str], type[Model]],
    config: Mapping[str, Any],
    section: str,
    names: Iterable[str],
) -> Named[Model]: ...
def parse(
    model: Any, config: Mapping[str, Any], section: str, names: Iterable[str] | None = None
) -> Any:
    """A section of a configuration, typed; `section=""` is all of it. With `names` it is a choice:
    its name is one of these, and `model` gives the type of its options. Raises ConfigError naming
    the full keys, for a boolean in place of a number as well."""
    plain = config.get(section) if section else config
    if not isinstance(plain, Mapping):
        choices = [f"{section}={file.stem}" for file in sorted((CONF / section).glob("*.yaml"))]
        keys = [] if names is not None else [f"{section}.{key}=VALUE" for key in model.model_fields]
        raise ConfigError(
            f"{section}={plain}: must be a section, not a single value; allowed: "
            f"{', '.join(choices or keys)}"
        )
    plain = dict(plain)
    if names is not None:
        name = plain.pop("name", None)
        if not (isinstance(name, str) and outside.is_outside(name)):
            check_known(f"{section}.name", name, names)
        try:
            model = model(name)
        except outside.OutsideError as error:
            raise ConfigError(str(error)) from error
    with refusals(section, model.model_fields, plain=plain):
        options = model.model_validate(plain)
    refuse_booleans(plain, options, section)
    return options if names is None else Named(name=name, options=options)
