"""One experiment point is one `Cell`. Its identity is hashed and the hash names its folder, nothing else does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
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

from bench.errors import ConfigError, invalid, one_line, unknown
from methods import registry as method_registry
from methods.drafters.base import Drafter
from methods.method import check
from methods.rules.base import Rule
from methods.sampling import Sampling
from tasks import registry as task_registry
from tasks.base import Task

IDENTITY_VERSION = 1  # raise it when the same settings come to mean another computation
SECTIONS = ("pair", "drafter", "rule", "task", "decoding", "engine", "draft", "n", "seed", "repeat", "batch")


BASELINE = {"drafter": "none", "rule": "lossless"}
NOTHING_TO_JUDGE = ("lossless", "greedy")  # rules that leave autoregressive decoding what it is
Model = TypeVar("Model", bound=BaseModel)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pair(Section):
    """Where the models are: local folders or hub names. `revision`s are for hub names."""

    name: str = Field(pattern=r"^[\w.-]+$")
    target: str
    draft: str | None = None
    target_revision: str | None = None
    draft_revision: str | None = None
    trust_remote_code: bool = False

    def check(self, role: str) -> None:
        """What looks like a folder must be one. Raises ConfigError."""
        source = self.source(role)
        if source is None:
            raise ConfigError(f"pair.{role} is not set: give pair.{role}=FOLDER-OR-NAME")
        parts = Path(source).parts
        looks_local = source.startswith((".", "/", "~")) or len(parts) != 2 or Path(parts[0]).is_dir()
        if looks_local and not Path(source).is_dir():
            raise ConfigError(f"pair.{role}={source}: no such folder; give a checkpoint or a hub name org/model")

    def source(self, role: str) -> str | None:
        """Folder or hub name of the model in a role: target, draft."""
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
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
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


class Cell(Section):
    """pair × drafter × rule × task × decoding × engine, with K, the number of prompts, the seed and the batch size."""

    pair: Pair
    drafter: Named[Drafter]
    rule: Named[Rule]
    task: Named[BaseModel]
    decoding: Decoding
    engine: Engine
    draft: DraftLength
    n: int | None = Field(ge=1)
    seed: int = Field(ge=0)
    repeat: int = Field(ge=0)
    batch: int = Field(ge=1)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Cell:
        """The cell of a composed configuration (its other keys are left alone). Raises ConfigError, one line."""
        found: dict[str, Any] = {name: config[name] for name in SECTIONS if name in config}
        found |= {
            "pair": parse(Pair, config, "pair"),
            "drafter": choose(config, "drafter", method_registry.drafter, method_registry.names("drafters")),
            "rule": choose(config, "rule", method_registry.rule, method_registry.names("rules")),
            "task": choose(config, "task", task_registry.options, task_registry.names()),
            "decoding": parse(Decoding, config, "decoding"),
            "engine": parse(Engine, config, "engine"),
            "draft": parse(DraftLength, config, "draft"),
        }
        if found["decoding"].max_new_tokens is None:
            limit = found["task"].options.max_new_tokens
            found["decoding"] = found["decoding"].model_copy(update={"max_new_tokens": limit})
        cell = validated(cls, found, "")
        cell._check()
        return cell

    def _check(self) -> None:
        """Refuse what cannot run together, before anything is loaded. Raises ConfigError."""
        if self.is_autoregressive and self.rule.name not in NOTHING_TO_JUDGE:
            raise ConfigError(f"drafter=none proposes nothing that rule={self.rule.name} could judge: take another "
                              "drafter, or method=ar")
        try:
            check(self.drafter.options, self.drafter.name, self.rule.options, self.decoding.sampling)
            if getattr(self.task.options, "path", None) is not None:
                self.load_task().prompts(self.n, self.seed)
        except ValueError as error:
            raise ConfigError(one_line(error)) from error
        roles = self.roles
        for role in roles:
            self.pair.check(role)
        sizes = {role: vocabulary(self.pair.source(role)) for role in roles}
        if len({size for size in sizes.values() if size is not None}) > 1:
            source, size = self.pair.source(roles[1]), sizes[roles[1]]
            raise ConfigError(f"pair.{roles[1]}={source}: its vocabulary has {size} entries, the target's "
                              f"{sizes['target']}; draft and target must share one vocabulary")

    @property
    def roles(self) -> tuple[str, ...]:
        """The parts of the pair that the cell runs."""
        needs = self.drafter.options.needs
        return ("target",) if needs is None else ("target", needs)

    def load_task(self) -> Task:
        return task_registry.build(self.task.name, self.task.options)

    @property
    def is_autoregressive(self) -> bool:
        return self.drafter.name == BASELINE["drafter"]

    def baseline(self) -> Cell:
        """The autoregressive twin: the same target, prompts and settings."""
        drafter, rule = BASELINE["drafter"], BASELINE["rule"]
        return self.model_copy(update={
            "drafter": Named(name=drafter, options=method_registry.drafter(drafter)()),
            "rule": Named(name=rule, options=method_registry.rule(rule)()),
        })

    @property
    def label(self) -> str:
        """Short name of the method: `ar`, `mars` on a draft model, `prompt_lookup-mars` on another drafter."""
        if self.is_autoregressive:
            return "ar"
        return self.rule.name if self.drafter.name == "model" else f"{self.drafter.name}-{self.rule.name}"

    @cached_property
    def name(self) -> str:
        """The folder in the store: readable, and unique by the hash of the identity."""
        return f"{self.pair.name}-{self.label}-{self.task.name}-{digest(self.identity())}"

    @cached_property
    def rotation_key(self) -> str:
        """Equal for cells that can run beside one baseline: all but drafter, rule and draft length."""
        return digest(self.baseline().identity())

    def fingerprints(self) -> dict[str, str]:
        """Role -> content fingerprint of each model that the cell runs. Raises ModelError."""
        from methods.engine.models import fingerprint

        return {role: fingerprint(self.pair.source(role), self.pair.revision(role)) for role in self.roles}

    def identity(self) -> dict[str, Any]:
        """All that decides the result, machine paths replaced by what lies there. Raises ModelError, TaskError."""
        plain = self.model_dump(mode="json")
        plain["pair"] = {"name": self.pair.name, **self.fingerprints()}
        task = plain["task"]
        del task["max_new_tokens"]  # decoding.max_new_tokens holds the limit that counts
        if task.get("path") is not None:
            task["path"] = hashlib.sha256(Path(task["path"]).read_bytes()).hexdigest()
        task["version"] = self.load_task().version
        if self.is_autoregressive:
            del plain["rule"], plain["draft"]  # nothing is drafted, so neither can matter
        return {"version": IDENTITY_VERSION, **plain}

    def record(self) -> dict[str, Any]:
        """What cell.yaml holds: the resolved settings, and the fingerprints of their files."""
        return {**self.model_dump(mode="json"), "fingerprints": self.fingerprints(), "name": self.name}


def vocabulary(source: str) -> int | None:
    """The vocabulary size that a local checkpoint declares, without loading it; None for hub names."""
    path = Path(source) / "config.json"
    if not path.exists():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    return config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")


def digest(plain: Mapping[str, Any]) -> str:
    """10 hex digits of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]


def validated(model: type[Model], data: Mapping[str, Any], section: str) -> Model:
    """Data -> typed section. Raises ConfigError naming the full keys."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(invalid(error, section, model.model_fields)) from error


def parse(model: type[Model], config: Mapping[str, Any], section: str) -> Model:
    return validated(model, _mapping(config, section), section)


def choose(config: Mapping[str, Any], section: str, options_of: Callable[[str], type[BaseModel]],
           names: Iterable[str]) -> dict[str, Any]:
    """A section that is a choice by name: its name and its typed options."""
    given = dict(_mapping(config, section))
    name = given.pop("name", None)
    if name not in names:
        raise ConfigError(unknown(f"{section}.name={name}", (f"{section}.name={n}" for n in names), what="unknown"))
    options = options_of(name)
    return Named[options](name=name, options=validated(options, given, section))


def _mapping(config: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    given = config.get(section)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{section}={given}: choose one of conf/{section}")
    return given
