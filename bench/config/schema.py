"""The typed sections of a configuration, and how plain data becomes them: validated once, here, with one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_serializer,
)

from bench.config.errors import ConfigError, NotInPair, format_validation, unknown_key
from methods.engine.source import folder_of, is_random
from methods.sampling import Sampling

Model = TypeVar("Model", bound=BaseModel)
DType = Literal["float32", "bfloat16", "float16", "float64"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pair(Section):
    """Where the models are: folders or hub names; `random:FOLDER` has that folder's shape and random weights.

    `target` is measured; the others draft for it: `draft` is a smaller language model, the rest are trained heads. A
    part may stay unset where no drafter wants it. `arc`, `autojudge` and `judge` are files measured on this pair, which
    presets of methods hand to their rules. `revision`s are for hub names; `dtype` is the one that the pair's makers run
    it in, engine.dtype follows it unless given. `chat_template`, a Jinja file, replaces that of the target's tokenizer,
    or stands in where it has none. `nodes` (of a dynamic tree, root included), `eagle_tree` and `medusa_tree` are the
    trees that reports draft for it: what pays on a GPU does not on a CPU."""

    name: str = Field(pattern=r"^[\w.-]+$")
    target: str
    draft: str | None = None
    eagle3: str | None = None
    eagle: str | None = None
    hass: str | None = None
    medusa: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    eagle3_revision: str | None = None
    eagle_revision: str | None = None
    hass_revision: str | None = None
    medusa_revision: str | None = None
    arc: str | None = None
    autojudge: str | None = None
    judge: str | None = None
    dtype: DType = "float32"
    chat_template: Path | None = None
    nodes: int = Field(60, ge=2)
    eagle_tree: str = "eagle_25"
    medusa_tree: str = "medusa_63"
    trust_remote_code: bool = False

    @field_validator("chat_template")
    @classmethod
    def _readable(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("no such file; give a Jinja chat template, or null for that of the target's tokenizer")
        return path

    @property
    def parts(self) -> dict[str, str]:
        """Role -> source of every part that is set."""
        roles = (name.removesuffix("_revision") for name in type(self).model_fields if name.endswith("_revision"))
        return {role: source for role in roles if (source := self.source(role)) is not None}

    def check(self, role: str) -> None:
        """What looks like a folder must be one. Raises ConfigError."""
        source = self.source(role)
        if source is None:
            has = ", ".join(f"pair.{part}" for part in self.parts)
            raise NotInPair(f"pair.{role} is not set: give pair.{role}=FOLDER-OR-NAME (pair={self.name} has {has})")
        if is_random(source):
            if not (folder_of(source) / "config.json").is_file():
                raise ConfigError(f"pair.{role}={source}: no config.json in this folder; random: needs the shape")
            return
        parts = Path(source).parts
        looks_local = source.startswith((".", "/", "~")) or len(parts) != 2 or Path(parts[0]).is_dir()
        if looks_local and not Path(source).is_dir():
            raise ConfigError(f"pair.{role}={source}: no such folder; give a checkpoint or a hub name org/model")

    def source(self, role: str) -> str | None:
        """Folder or hub name of the model in a role: target, draft, eagle3, …"""
        return getattr(self, role)

    def revision(self, role: str) -> str | None:
        return getattr(self, f"{role}_revision")


class Decoding(Section):
    temperature: float = Field(ge=0, allow_inf_nan=False)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0)
    max_new_tokens: int | None = Field(ge=1)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p)


class Engine(Section):
    device: str
    dtype: DType
    threads: int | None = Field(ge=1)

    @field_validator("device")
    @classmethod
    def _present(cls, device: str) -> str:
        """`auto` becomes what it stands for here, so that a result names its device."""
        import torch

        if device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        kind, _, index = device.partition(":")
        if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
            raise ValueError("must be auto, cpu, cuda or cuda:INDEX")
        if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
            raise ValueError(f"there are {torch.cuda.device_count()} CUDA devices here; take engine.device=cpu")
        return device


class DraftLength(Section):
    length: int = Field(ge=1)


class Named(Section, Generic[Model]):
    """A choice by name with its own typed options; written as one flat mapping."""

    name: str
    options: SerializeAsAny[Model]

    @model_serializer(mode="wrap")
    def _flat(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        raw = handler(self)
        return {"name": raw["name"], **raw["options"]}


def validated(model: type[Model], data: Mapping[str, Any], section: str) -> Model:
    """Data -> typed section. Raises ConfigError naming the full keys."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(format_validation(error, section, model.model_fields)) from error


def parse(model: type[Model], config: Mapping[str, Any], section: str) -> Model:
    return validated(model, _mapping(config, section), section)


def choose(config: Mapping[str, Any], section: str, options_of: Callable[[str], type[BaseModel]],
           names: Iterable[str]) -> dict[str, Any]:
    """A section that is a choice by name: its name and its typed options."""
    given = dict(_mapping(config, section))
    name = given.pop("name", None)
    if name not in names:
        raise ConfigError(unknown_key(f"{section}.name={name}", (f"{section}.name={n}" for n in names), what="unknown"))
    options = options_of(name)
    return Named[options](name=name, options=validated(options, given, section))


def _mapping(config: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    given = config.get(section)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{section}={given}: choose one of conf/{section}")
    return given


def vocabulary(source: str) -> int | None:
    """The vocabulary size that a local checkpoint declares, without loading it; None for hub names."""
    path = folder_of(source) / "config.json"
    if not path.exists():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
