"""One experiment point is one `Cell`. Its identity is hashed and the hash names its folder, nothing
else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel

from bench.config.code import code_of
from bench.config.engine import EngineOptions, check_for_vllm
from bench.config.environment import environment
from bench.config.errors import ConfigError, NotHere
from bench.config.identity import IDENTITY_VERSION, are_own, by_content, contents, digest
from bench.config.paths import PROJECT, TINY, portable
from bench.config.schema import (
    SECTIONS,
    Checkpoint,
    Decoding,
    DraftLength,
    Numbers,
    Pair,
    parsed_sections,
)
from bench.config.section import Named, Section, parse
from methods import outside
from methods import registry as method_registry
from methods.drafters.base import Drafter
from methods.engine.families import check_division, check_generation_config, resolve
from methods.engine.fingerprints import config_of, dequantised, fingerprint
from methods.engine.source import ModelError, ModelSource, check_objects, read_json
from methods.engine.texts import declared_size, may_share_rows, token_texts
from methods.method import capabilities
from methods.pruning import Pruning
from methods.rules.base import Rule
from results.store.errors import one_line, redacted_plain
from tasks import registry as task_registry
from tasks.base import DataMissing, Prompt, Task, TaskOptions
from tasks.scorers.base import Scorer, find_outside

BORROWED_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files of the embedded pair, for a model without a tokenizer."""
BASELINE = {"drafter": "none", "rule": "lossless"}
LONGEST_LABEL = 200
"""Characters of a cell's name before its hash: a folder's name has 255 bytes at most."""
NOTHING_TO_JUDGE = ("lossless", "greedy")
"""Rules that leave autoregressive decoding what it is."""

_READABLE: set[tuple[Any, ...]] = set()
"""Tasks, n and seed whose prompts were read: a report has many cells of one task."""


@cache
def _texts(source: str, revision: str | None) -> Callable[[Sequence[int]], list[str]]:
    if (PROJECT / source).is_dir():  # as a store names the folders of the checkout
        source = str(PROJECT / source)
    return token_texts(
        source, revision, TINY / "target" if ModelSource.of(source).is_random else None
    ).of


def _scorer_outside(name: str) -> tuple[str, type[Any]] | None:
    """The scorer of this name outside of the project, if there is one. Raises OutsideError."""
    if outside.is_outside(name):
        name = outside.absolute(name)
        return name, outside.load("scorer", name, Scorer)
    point = outside.installed("scorers").get(name)
    return None if point is None else (name, outside.from_entry_point("scorer", point, Scorer))


find_outside(_scorer_outside)


class NoPruning(Section):
    """The whole draft is verified."""


PRUNING: Mapping[str, type[BaseModel]] = {"none": NoPruning, "branches": Pruning}


class Cell(Numbers):
    """pair × drafter × rule × task × decoding × engine, with K, the numbers of prompts and of timed
    prompts, the seed and the batch size of the timed pass."""

    pair: Pair
    drafter: Named[Drafter]
    rule: Named[Rule]
    task: Named[TaskOptions]
    decoding: Decoding
    engine: EngineOptions
    draft: DraftLength
    pruning: Named[Pruning] | None = None

    @classmethod
    def parsed(cls, config: Mapping[str, Any]) -> Cell:
        """The cell of a composed configuration (its other keys are left alone), without `check`.
        Raises ConfigError, one line."""
        sections: dict[str, Any] = {name: config[name] for name in SECTIONS if name in config}
        sections |= Numbers.of(config)
        sections |= parsed_sections(config)
        sections |= {
            "drafter": parse(
                method_registry.drafter, config, "drafter", method_registry.names("drafters")
            ),
            "rule": parse(method_registry.rule, config, "rule", method_registry.names("rules")),
            "task": parse(
                task_registry.options, config, "task", task_registry.names(config.get("task"))
            ),
            "engine": parse(EngineOptions, config, "engine"),
            "pruning": None,
        }
        if config.get("pruning") is not None:
            chosen = parse(PRUNING.__getitem__, config, "pruning", PRUNING)
            sections["pruning"] = None if chosen.name == "none" else chosen
        decoding = sections["decoding"]
        if decoding.max_new_tokens is None:
            limit = sections["task"].options.max_new_tokens
            sections["decoding"] = decoding.model_copy(update={"max_new_tokens": limit})
        return parse(cls, sections, "")

    def check(self) -> None:
        """Refuse what cannot run together, before anything is loaded. Raises ConfigError."""
        if self.is_autoregressive and self.rule.name not in NOTHING_TO_JUDGE:
            raise ConfigError(
                f"drafter=none proposes nothing that rule={self.rule.name} could judge: take "
                "another drafter, or method=ar"
            )
        try:
            candidates = capabilities(
                self.drafter.options, self.drafter.name, self.decoding.sampling
            )
            self.rule.options.check(candidates, self.decoding.sampling)
            if self.pruning is not None:
                self.pruning.options.check(candidates)
            self._check_prompts()
        except DataMissing as error:
            raise NotHere(one_line(error)) from error
        except ValueError as error:
            raise ConfigError(one_line(error)) from error
        check_for_vllm(self)
        self._check_penalty()
        for role in self.roles:
            self.pair.check(role)
        sources = {role: checkpoint.source for role, checkpoint in self.checkpoints.items()}
        try:
            for source in sources.values():
                check_objects(source)
            if not self.pair.ignore_generation_config:
                penalty = self.decoding.repetition_penalty
                check_generation_config(sources["target"], penalty=penalty)
            self._check_division()
            sizes = {role: declared_size(source) for role, source in sources.items()}
        except ModelError as error:
            raise ConfigError(one_line(error)) from error
        distinct = {size for size in sizes.values() if size is not None}
        if len(distinct) > 1:
            role = self.roles[1]
            pads = role == "draft" and self.engine.name == "native"
            if not (pads and may_share_rows([*sources.values()], min(distinct))):
                raise ConfigError(
                    f"pair.{role}={sources[role]}: its vocabulary has {sizes[role]} entries, the "
                    f"target's {sizes['target']}; draft and target must share one vocabulary"
                )
        if len(name := f"{self.pair.name}-{self.label}-{self.task.name}") > LONGEST_LABEL:
            raise ConfigError(
                f"{name[:60]}…: the names of pair, method and task are {len(name)} characters "
                f"together; at most {LONGEST_LABEL} name a folder"
            )

    def _check_penalty(self) -> None:
        """Raises ConfigError for a repetition penalty that a method would not apply."""
        penalty, drafter = self.decoding.repetition_penalty, self.drafter.options
        if penalty == 1.0:
            return
        chains = self.drafter.name == "model" and drafter.is_chain()
        if not (chains or self.is_autoregressive) or self.rule.options.needs_hidden():
            raise ConfigError(
                f"decoding.repetition_penalty={penalty:g}: is applied by drafter=none and by "
                "chains of drafter=model, under rules that read no hidden states; give "
                "decoding.repetition_penalty=1"
            )
        if self.engine.name == "vllm" or self.pruning is not None:
            raise ConfigError(
                f"decoding.repetition_penalty={penalty:g}: needs engine=native and pruning=none"
            )

    def _check_division(self) -> None:
        """Raises ModelError where the target is on this machine and cannot be divided as
        engine.parallel asks."""
        source = self.pair.target.source
        file = ModelSource.of(source).folder / "config.json"
        if self.engine.parallel == "tensor" and file.is_file():
            check_division(source, read_json(file), self.engine.devices)

    def _check_prompts(self) -> None:
        """Raises TaskError where prompts of a file on this machine cannot be read."""
        if (task := self.load_task()).path is None:
            return
        key = (self.task.model_dump_json(), self.n, self.seed)
        if key not in _READABLE:
            task.prompts(self.n, self.seed)
            _READABLE.add(key)

    @property
    def roles(self) -> tuple[str, ...]:
        """The parts of the pair that the cell runs."""
        needs = self.drafter.options.model_role
        return ("target",) if needs is None else ("target", needs)

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """Role -> model of each role that the cell runs. Raises NotHere for one that is not set."""
        return {role: self.pair.checkpoint(role) for role in self.roles}

    @property
    def timed_prompts(self) -> int:
        """`timed`, rounded up to whole batches."""
        return -(-self.timed // self.batch) * self.batch

    @property
    def max_new_tokens(self) -> int:
        """The limit of a turn: the task's where decoding.max_new_tokens is null."""
        limit = self.decoding.max_new_tokens
        return self.task.options.max_new_tokens if limit is None else limit

    def load_task(self) -> Task:
        task = task_registry.build(self.task.name, self.task.options)
        if task.runs_programs:
            with suppress(ModelError):  # a model that is not here is not the project's
                task.own_models = are_own(self.fingerprints().values())
        return task

    def prompts(self) -> list[Prompt]:
        """The prompts asked for. Raises TaskError."""
        return self.load_task().prompts(self.n, self.seed)

    @property
    def is_autoregressive(self) -> bool:
        return self.drafter.name == BASELINE["drafter"]

    def baseline(self) -> Cell:
        """Autoregressive decoding of the same target, prompts and settings. All cells share its
        samples, so its batch is 1, whatever theirs."""
        return self.autoregressive

    @cached_property
    def autoregressive(self) -> Cell:
        """`baseline`, made once: its name takes a hash of the models' files."""
        drafter, rule = BASELINE["drafter"], BASELINE["rule"]
        return self.replace(
            drafter=Named(name=drafter, options=method_registry.drafter(drafter)()),
            rule=Named(name=rule, options=method_registry.rule(rule)()),
            pruning=None,
            batch=1,
        )

    def lossless(self) -> Cell:
        """This point under the lossless rule."""
        return self.replace(
            rule=Named(name=BASELINE["rule"], options=method_registry.rule(BASELINE["rule"])())
        )

    @property
    def is_lossless(self) -> bool:
        """Whether the method has exactly the target's distribution: any lossless rule at
        temperature 0; above it, the lossless test without pruning and with q_mode exact."""
        sampling = self.decoding.sampling
        return self.rule.options.is_lossless(sampling) and (sampling.greedy or self.pruning is None)

    def replace(self, **changes: Any) -> Cell:
        """This point with some of its sections changed."""
        # model_copy would keep the names that were computed for this point
        return type(self).model_construct(**{**dict(self), **changes})

    @property
    def label(self) -> str:
        """Short name of the method: `ar`, `mars` on a draft model, `prompt_lookup-mars` on another
        drafter."""
        if self.is_autoregressive:
            return "ar"
        rule = method_registry.title("rules", self.rule.name)
        if self.drafter.name == "model":
            return rule
        return f"{method_registry.title('drafters', self.drafter.name)}-{rule}"

    @cached_property
    def name(self) -> str:
        """The folder in the store: readable, and unique by the hash of the identity."""
        return self.named(self.identity())

    @cached_property
    def unread_name(self) -> str:
        """As `name`, without the content of its models: tells cells of one command apart."""
        return self.named(self.identity({}, {}))

    def named(self, identity: Mapping[str, Any]) -> str:
        """The folder of a cell of these names with this identity."""
        return f"{self.pair.name}-{self.label}-{self.task.name}-{digest(identity)}"

    @cached_property
    def group_key(self) -> str:
        """Equal for cells that can be timed beside one baseline: all but drafter, rule, draft
        length and the numbers of prompts."""
        return digest(
            {**self.baseline().identity(), "batch": self.batch, "engine": self.engine.model_dump()}
        )

    def fingerprints(self) -> dict[str, str]:
        """Role -> content fingerprint of each model that the cell runs. Raises ModelError."""
        return {
            role: fingerprint(checkpoint.source, checkpoint.revision)
            for role, checkpoint in self.checkpoints.items()
        }

    def decoders(self) -> dict[str, str]:
        """Role -> what runs the forwards of each causal LM of the cell. A head follows its target,
        and so does a draft cut out of it. Raises ModelError."""
        return {
            role: resolve(
                model.source, config_of(model.source, model.revision), self.engine.decoder
            )
            for role, model in self.checkpoints.items()
            if role == "target" or (role == "draft" and not ModelSource.of(model.source).is_cut)
        }

    @property
    def texts(self) -> Callable[[Sequence[int]], list[str]] | None:
        """Splits answers into the texts of their tokens, by the target's tokenizer, without its
        model; None where that is not on this machine."""
        try:
            return _texts(self.pair.target.source, self.pair.target.revision)
        except ModelError:
            return None

    def dequantised(self) -> dict[str, str]:
        """Role -> GGUF file whose dequantised weights are measured. Raises ModelError."""
        origins = {
            role: dequantised(checkpoint.source, checkpoint.revision)
            for role, checkpoint in self.checkpoints.items()
        }
        return {role: origin for role, origin in origins.items() if origin is not None}

    def environment(self, argv: list[str]) -> dict[str, Any]:
        """Command, machine, versions, models and what was found right with them, as
        environment.json holds them. Raises ModelError."""
        record = environment(
            argv, self.engine.device, self.engine.spread, self.fingerprints(), self.dequantised()
        )
        return record | {"probed": self.probed()}

    def probed(self) -> dict[str, dict[str, Any] | None]:
        """Role -> what the engine was found to do right with its causal LM, None where nobody
        looked. Raises ModelError."""
        return self.engine.probed(
            {
                role: digits
                for role, digits in self.fingerprints().items()
                if role in self.pair.causal_roles
            }
        )

    def identity(
        self, models: Mapping[str, str] | None = None, decoders: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """All that decides the tokens, with the content of every file in place of its path.
        `models`: role -> fingerprint, and `decoders`: role -> decoder, where these are not asked of
        the models. Raises ModelError, TaskError."""
        plain = by_content(self.model_dump(mode="json"), self.model_dump())
        prints = self.fingerprints() if models is None else models
        plain["pair"] = {"name": self.pair.name, **prints}
        if self.pair.chat_template is not None:
            plain["pair"]["chat_template"] = contents(self.pair.chat_template)
        if self.pair.thinking is not None:
            plain["pair"]["thinking"] = self.pair.thinking
        if ModelSource.of(self.pair.target.source).is_random:
            plain["pair"]["tokenizer"] = [
                contents(TINY / "target" / name) for name in BORROWED_TOKENIZER
            ]
        for chosen in (plain["rule"], plain["drafter"], plain["task"].get("scorer", {})):
            if outside.is_outside(chosen.get("name", "")):
                chosen["name"] = outside.short(chosen["name"])
        plain["engine"] = self.engine.identity(
            self.decoders if decoders is None else lambda: dict(decoders)
        )
        plain["task"]["version"] = self.load_task().version
        del plain["n"], plain["timed"]  # more prompts extend a cell
        plain["task"].pop("pass_at", None)  # how samples are scored changes none
        del plain["task"]["max_new_tokens"]  # decoding.max_new_tokens holds the limit that counts
        if self.pruning is None:
            del plain["pruning"]
        if self.is_autoregressive:
            del plain["rule"], plain["draft"]  # nothing is drafted, so neither can matter
        return {"version": IDENTITY_VERSION, **plain}

    def task_contents(self) -> str:
        """Digest of the task's settings and version, with the content of its files in place of
        their paths. Raises ConfigError, TaskError."""
        task = by_content(self.task.model_dump(mode="json"), self.task.model_dump())
        return digest({"task": task, "version": self.load_task().version})

    def record(self) -> dict[str, Any]:
        """What cell.yaml holds: the resolved settings, the version of what they mean, the
        fingerprints of their files, and the name of the baseline's cell. Paths inside the checkout
        are relative to it; texts are without secrets."""
        plain = self.model_dump(mode="json", exclude={"n", "timed"})
        plain |= redacted_plain({name: plain[name] for name in ("pair", "task", "drafter", "rule")})
        return {
            **portable(plain),
            **({} if self.engine.repeats(self) else {"repeatable": False}),
            "identity": IDENTITY_VERSION,
            "fingerprints": self.fingerprints(),
            "task_contents": self.task_contents(),
            "code": code_of(self),
            "name": self.name,
            "baseline": self.name if self.is_autoregressive else self.baseline().name,
        }
