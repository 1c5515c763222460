"""What rules see of a lossless decode, on file (safetensors), and put before them again without
models.

In each context the `top` largest logits of target and draft are kept, and those of the drafted
tokens; the mass of the others is known and spread evenly over them. With top = 0 all logits are
kept, and a replay gives the numbers of the decode itself. Tensors, with C cycles, N nodes, k = top,
R requests (a turn of a prompt each), A answers:

    tokens, parents [C, N], valid [C, N], kept [C, N]   drafts, and the path that was kept
    drawn [C]                     the token behind the path
    request, step [C]             whose cycle it is, and its number from 0
    q [C, N]                      of drafts with a distribution
    target.*, draft.*             see `Logits`
    prompt_ids, prompt_ends       token ids of all requests in a row, the answer's first token
                                  included; where each ends
    answer [R], emitted [R]       the answer of each request, the tokens it emitted

Hidden states are not kept: rules that read them cannot be replayed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from methods.batch import Generation
from methods.decode import Limits, Observer, Request
from methods.distortion import with_u
from methods.kept import OTHERS, PARTS, Logits, Narrow
from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk
from methods.sampling import Sampling
from methods.screen import Name, Screen, Screened
from methods.trees.draft import Draft

FORMAT = 1
REPLAYED_BYTES = 1 << 28
"""Of the logits that are put before the rules at once, at most."""
CPU = torch.device("cpu")
TRIED = 4
"""Cycles in which a rule is tried on both forms of the logits."""


class ContextsError(ValueError):
    """A file of contexts cannot be read, or a rule cannot be replayed from it. One line."""


class Description(BaseModel):
    """What the file says of the decode, as JSON in its metadata.

    vocab     number of tokens.
    top       logits kept in each context; 0: all.
    sampling  of the decode, as `methods.sampling.Sampling` has it.
    sampled   candidates were drawn from the draft's distribution.
    chain     every draft is a chain.
    target, draft, fingerprints  where the models came from, and their content.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: int = FORMAT
    vocab: PositiveInt
    top: NonNegativeInt
    sampling: dict[str, Any]
    sampled: bool
    replacement: bool
    chain: bool
    max_new_tokens: PositiveInt
    ends: tuple[int, ...]
    target: str
    draft: str | None
    fingerprints: dict[str, str]
    task: str
    code: str


@dataclass
class Recorder(Observer):
    """Keeps what rules see of some decodes; `begin` before each, `end` behind it. A decode that is
    begun and does not end is forgotten.

    top  logits kept in each context; 0: all.
    """

    top: int
    _cycles: dict[str, list[Tensor]] = field(default_factory=dict)
    _prompts: list[list[int]] = field(default_factory=list)
    _answers: list[int] = field(default_factory=list)
    _emitted: list[int] = field(default_factory=list)
    _asked: list[int] = field(default_factory=list)
    _now: dict[str, list[Tensor]] = field(default_factory=dict)
    _texts: list[list[int]] = field(default_factory=list)
    _requests: Sequence[Request] = ()
    _steps: list[int] = field(default_factory=list)
    _sampled: bool = False
    _replacement: bool = True
    _chain: bool = True

    def begin(self, requests: Sequence[Request], answers: Sequence[int]) -> None:
        """The next decode is that of these requests, each a turn of one of `answers`."""
        self._requests, self._asked = requests, list(answers)
        self._now, self._texts, self._steps = {}, [], [0] * len(requests)

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        for request, first in zip(self._requests, token.tolist(), strict=True):
            self._texts.append([*request.input_ids, first])

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        self._sampled, self._chain = v.draft.sampled, v.draft.chain
        self._replacement = v.draft.replacement
        kept = {
            "tokens": v.draft.tokens,
            "parents": v.draft.parents.expand_as(v.draft.tokens),
            "valid": v.draft.valid,
            "kept": path.kept,
            "drawn": token,
            "request": torch.tensor(requests),
            "step": torch.tensor([self._steps[request] for request in requests]),
        }
        kept |= _prefixed("target", Logits.of(v.logits, v, self.top))
        if v.draft.logits is not None and v.draft.q is not None:
            kept["q"] = v.draft.q
            kept |= _prefixed("draft", Logits.of(v.draft.logits, v, self.top))
        for name, values in kept.items():
            self._now.setdefault(name, []).append(values.cpu())
        for request in requests:
            self._steps[request] += 1

    def end(self, generations: Sequence[Generation]) -> None:
        """The decode has ended with these generations."""
        tensors = {name: torch.cat(parts) for name, parts in self._now.items()}
        if tensors:
            ends = torch.tensor([len(generation.committed) for generation in generations])
            alive = tensors["step"] < ends[tensors["request"]]  # cycles behind an end are none
            tensors["request"] = tensors["request"] + len(self._prompts)
            for name, values in tensors.items():
                self._cycles.setdefault(name, []).append(values[alive])
        self._prompts += self._texts
        self._answers += self._asked
        self._emitted += [len(generation.output_ids) for generation in generations]

    def write(
        self,
        file: Path,
        sampling: Sampling,
        limits: Limits,
        without: Collection[int] = (),
        **said: Any,
    ) -> None:
        """Write the file without some answers; `said`: the parts of the description that only the
        caller knows. Raises ContextsError where nothing was decoded."""
        if not self._cycles:
            raise ContextsError(f"{file}: not written: no cycle was decoded")
        places = [place for place, answer in enumerate(self._answers) if answer not in without]
        renamed = torch.full((len(self._answers),), -1)
        renamed[places] = torch.arange(len(places))
        tensors = {name: torch.cat(parts) for name, parts in self._cycles.items()}
        tensors["request"] = renamed[tensors["request"]]
        stays = tensors["request"] >= 0
        tensors = {name: values[stays] for name, values in tensors.items()}
        prompts = [self._prompts[place] for place in places]
        vocab = said["vocab"]
        for name in ("target.ids", "draft.ids"):
            if name in tensors:
                tensors[name] = _small(tensors[name], vocab)
        tensors |= {
            "prompt_ids": torch.tensor([token for ids in prompts for token in ids]).int(),
            "prompt_ends": torch.tensor([len(ids) for ids in prompts]).cumsum(0),
            "answer": torch.tensor([self._answers[place] for place in places]),
            "emitted": torch.tensor([self._emitted[place] for place in places]),
        }
        tensors["tokens"] = tensors["tokens"].int()
        tensors["parents"] = tensors["parents"].to(torch.int16)
        tensors["drawn"], tensors["request"] = tensors["drawn"].int(), tensors["request"].int()
        tensors["step"] = tensors["step"].int()
        description = Description(
            top=self.top,
            sampling=asdict(sampling),
            sampled=self._sampled,
            replacement=self._replacement,
            chain=self._chain,
            max_new_tokens=limits.max_new_tokens,
            ends=tuple(sorted(limits.eos_ids)),
            **said,
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"leeway": description.model_dump_json()}
        save_file({name: x.contiguous() for name, x in tensors.items()}, file, metadata)


def _prefixed(prefix: str, logits: Logits) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": getattr(logits, name) for name in PARTS}


def _small(ids: Tensor, vocab: int) -> Tensor:
    """Token ids in two bytes where that suffices."""
    if vocab > np.iinfo(np.uint16).max + 1:
        return ids.int()
    return torch.from_numpy(ids.numpy().astype(np.uint16))


@dataclass(frozen=True, slots=True)
class Stub:
    """A model that is not here: what a rule may ask of it without its weights."""

    source: str
    fingerprint: str
    vocab_size: int

    @property
    def device(self) -> torch.device:
        return CPU

    def __getattr__(self, name: str) -> Any:
        raise ContextsError(
            f"reads {name} of {self.source}, and a file of contexts holds no weights: screen it "
            "with the models"
        )


class Contexts:
    """A file of contexts, checked when it is opened. Raises ContextsError."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with safe_open(file, "pt") as opened:
                said = (opened.metadata() or {}).get("leeway")
                if said is None:
                    raise ContextsError(
                        f"{file}: holds no contexts; give a file that `bench.screen record=FILE` "
                        "wrote"
                    )
                self.description = Description.model_validate_json(said)
                self._tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, json.JSONDecodeError) as error:
            raise ContextsError(f"{file}: cannot be read as safetensors: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ContextsError(
                f"{file}: its description is wrong: {where}: {first['msg']}"
            ) from error
        if self.description.format != FORMAT:
            raise ContextsError(
                f"{file}: format {self.description.format}; this version reads {FORMAT}"
            )
        self._check()

    @property
    def origin(self) -> str:
        """What was decoded, for people."""
        said, (cycles, nodes) = self.description, self._tensors["tokens"].shape
        shape = f"chains of {nodes - 1}" if said.chain else f"trees of {nodes - 1}"
        kept = f"{said.top} largest logits" if said.top else "all logits"
        return (
            f"{said.target}, drafted by {said.draft or 'no model'}, {shape}, task {said.task}, "
            f"temperature {self.sampling.temperature:g}, {cycles} cycles, {kept}, code "
            f"{said.code.removeprefix('sha256:')[:12]}"
        )

    @property
    def sampling(self) -> Sampling:
        return Sampling(**self.description.sampling)

    @property
    def limits(self) -> Limits:
        return Limits(self.description.max_new_tokens, frozenset(self.description.ends))

    @property
    def has_q(self) -> bool:
        return "q" in self._tensors

    @property
    def requests(self) -> list[Request]:
        """The requests, without the first tokens of their answers."""
        return [Request(ids[:-1], str(place)) for place, ids in enumerate(self._texts())]

    @property
    def answers(self) -> list[int]:
        """The answer that each request is a turn of."""
        return cast(list[int], self._tensors["answer"].tolist())

    @property
    def emitted(self) -> list[int]:
        """Tokens that each request emitted."""
        return cast(list[int], self._tensors["emitted"].tolist())

    def bound(self, rule: Rule) -> Rule:
        """The rule, bound to models that are not here. Raises ContextsError for one that needs
        them."""
        if rule.needs_hidden() or rule.needs_draft_hidden():
            raise ContextsError("reads hidden states, which a file of contexts does not hold")
        if rule.needs_q(self.sampling) and not self.has_q:
            raise ContextsError("reads the draft's distribution, and this file has none")
        said = self.description
        target = Stub(said.target, said.fingerprints.get("target", ""), said.vocab)
        draft = None
        if said.draft is not None:
            print_of_draft = next(
                (digits for role, digits in said.fingerprints.items() if role != "target"), ""
            )
            draft = Stub(said.draft, print_of_draft, said.vocab)
        return rule.bind(cast(Any, target), cast(Any, draft))

    def screened(self, rules: dict[Name, Rule]) -> dict[Name, Screened]:
        """What each bound rule does in each request, as `methods.screen.screened`."""
        screen = Screen(rules, self.requests, self.limits, CPU)
        firsts = torch.tensor([ids[-1] for ids in self._texts()])
        screen.on_first(torch.empty(0), firsts)
        steps = self._steps()
        counted = torch.zeros_like(self._tensors["valid"])
        for places in steps:
            draft, requests = self._draft(places), self._tensors["request"][places].long()
            counted[places] = screen.counted(draft, requests)
            path, token = self._path(places, draft), self._tensors["drawn"][places].long()
            screen.advance(draft, path, token, counted[places], requests)
        whole = self._needing_whole(rules)
        by_step = {name for name in rules if screen.states[name]}
        together = [torch.arange(len(counted))]
        for is_whole, names in ((False, set(rules) - whole), (True, whole)):
            for order, some in ((steps, names & by_step), (together, names - by_step)):
                for places in self._pieces(order, is_whole) if some else ():
                    v, path = self._cycle(places, is_whole)
                    token = self._tensors["drawn"][places].long()
                    requests = self._tensors["request"][places].long()
                    for name in some:
                        screen.put(name, v, counted[places], path, token, requests)
        count = torch.bincount(self._tensors["request"].long(), minlength=len(self.answers))
        return screen.of(count.tolist())

    def _needing_whole(self, rules: dict[Name, Rule]) -> set[Name]:
        """The rules that decide otherwise in the narrow form than in the whole one, in some cycles:
        those that look at particular tokens, or at the entropy of the tail. With all logits on file
        there is no narrow form."""
        top, cycles = self.description.top, len(self._tensors["step"])
        if not top or 3 * top + OTHERS > self.description.vocab:
            return set(rules)
        places = torch.linspace(0, cycles - 1, min(cycles, TRIED)).long()
        texts = self._texts()
        rows = [texts[request] for request in self._tensors["request"][places].tolist()]
        forms = [self._cycle(places, whole)[0] for whole in (False, True)]
        tested = forms[0].draft.valid & (forms[0].draft.depth > 0)
        needing = set()
        for name, rule in rules.items():
            accepted = []
            for form in forms:
                seen = with_u(form, form.u)
                seen.state, seen.notes, seen.by_draft = rule.start(rows, CPU), {}, {}
                try:
                    accepted.append(rule.decide(seen).accept[tested])
                except (IndexError, RuntimeError):  # it has a table of the vocabulary
                    accepted.append(torch.full_like(tested[tested], len(accepted)))
            if not torch.equal(*accepted):
                needing.add(name)
        return needing

    def _texts(self) -> list[list[int]]:
        ids, ends = self._tensors["prompt_ids"].tolist(), self._tensors["prompt_ends"].tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _steps(self) -> list[Tensor]:
        """The places of the first cycles of all requests, of the second ones, …"""
        step = self._tensors["step"]
        last = int(step.max()) + 1 if len(step) else 0
        return [(step == number).nonzero()[:, 0] for number in range(last)]

    def _pieces(self, order: Sequence[Tensor], whole: bool) -> Iterator[Tensor]:
        """The places, as many at once as fit."""
        nodes = self._tensors["tokens"].shape[1]
        # of the narrow form, every token is compared with every other
        size = 4 * self.description.vocab if whole else 2 * (2 * self.description.top + nodes) ** 2
        rows = max(1, REPLAYED_BYTES // (nodes * size))
        for places in order:
            yield from places.split(rows)

    def _draft(self, places: Tensor) -> Draft:
        """The drafts of some cycles, without logits."""
        held, said = self._tensors, self.description
        tokens, valid = held["tokens"][places].long(), held["valid"][places]
        q = held["q"][places] if self.has_q else None
        if said.chain:
            draft = Draft.of_chain(tokens, valid=valid, sampled=said.sampled, q=q)
        else:
            parents = held["parents"][places].long()
            draft = Draft.of_parents(tokens, parents, valid=valid, sampled=said.sampled, q=q)
            draft.replacement = said.replacement
        return _explicit(draft)

    def _path(self, places: Tensor, draft: Draft) -> Walk:
        kept = self._tensors["kept"][places]
        return Walk(kept, torch.where(kept, draft.depth, -1).argmax(1), kept.sum(1) - 1)

    def _cycle(self, places: Tensor, whole: bool) -> tuple[Verification, Walk]:
        """Some cycles with the logits in the whole or the narrow form, and the paths kept."""
        draft, vocab = self._draft(places), self.description.vocab
        path = self._path(places, draft)
        target = self._logits("target", places)
        other = self._logits("draft", places) if self.has_q else None
        if whole:
            logits = target.dense(draft, vocab)
            draft.logits = None if other is None else other.dense(draft, vocab)
        else:
            narrow = Narrow.of(draft, target, other, vocab)
            logits, draft.logits, draft.tokens = narrow.target, narrow.draft, narrow.tokens
        u = torch.rand(draft.tokens.shape, generator=torch.Generator().manual_seed(0))
        return Verification(draft, logits, self.sampling, u), path

    def _logits(self, prefix: str, places: Tensor) -> Logits:
        parts = [self._tensors[f"{prefix}.{name}"] for name in PARTS]
        parts[2] = torch.from_numpy(parts[2].numpy().astype(np.int64))
        return Logits(*parts)[places]

    def _check(self) -> None:
        """Raises ContextsError for tensors that are missing or do not fit each other."""
        needed = {"tokens", "parents", "valid", "kept", "drawn", "request", "step", "answer"}
        needed |= {"emitted", "prompt_ids", "prompt_ends", *(f"target.{name}" for name in PARTS)}
        if missing := needed - self._tensors.keys():
            raise ContextsError(f"{self.file}: lacks {min(missing)}; it is not whole")
        cycles, nodes = self._tensors["tokens"].shape
        vocab, requests = self.description.vocab, len(self._tensors["answer"])
        for name, values in self._tensors.items():
            of_cycles = name.partition(".")[0] in ("target", "draft") or name in (
                "tokens",
                "parents",
                "valid",
                "kept",
                "q",
            )
            if of_cycles and values.shape[:2] != (cycles, nodes):
                raise ContextsError(f"{self.file}: {name} does not fit the drafts; it is not whole")
        places = {"tokens": vocab, "drawn": vocab, "request": requests, "prompt_ids": vocab}
        for name, limit in places.items():
            values = self._tensors[name]
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < limit:
                raise ContextsError(f"{self.file}: {name} holds what is not below {limit}")


def _explicit(draft: Draft) -> Draft:
    """The draft with parents and depth of each row by itself."""
    rows = len(draft.tokens)
    draft.parents = draft.parents.expand(rows, -1)
    draft.depth = draft.depth.expand(rows, -1)
    return draft
