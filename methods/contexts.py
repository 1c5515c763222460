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
from collections.abc import Iterator, Sequence
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
from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk
from methods.sampling import Sampling
from methods.screen import Name, Screen, Screened
from methods.trees.draft import Draft

FORMAT = 1
REPLAYED_BYTES = 1 << 28
"""Of the logits that are put before the rules at once, at most."""


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


@dataclass(slots=True)
class Logits:
    """Logits [C, N, V] of contexts, or what is kept of them.

    largest  [C, N] float32
    values   [C, N, k] float16: z - largest of the tokens `ids`; with top = 0 [C, N, V] float32 raw
    ids      [C, N, k] integers; empty with top = 0
    child    [C, N] float32: the raw logit of each node's own token at its parent
    rest     [C, N] float32: log of the mass of all other tokens, exp(z - largest) summed
    """

    largest: Tensor
    values: Tensor
    ids: Tensor
    child: Tensor
    rest: Tensor

    @classmethod
    def of(cls, logits: Tensor, v: Verification, top: int) -> Logits:
        """Keep the `top` largest of `logits` [B, N, V]."""
        z = logits.nan_to_num(0.0)
        child = v.of_token(z)
        largest = z.amax(-1)
        if not top or top >= z.shape[-1]:
            empty = torch.zeros(*z.shape[:2], 0, dtype=torch.int32)
            rest = torch.full_like(largest, -torch.inf)
            return cls(largest, z.float(), empty, child, rest)
        values, ids = z.topk(top, -1)
        mass = (z - largest[..., None]).double().exp()
        mass.scatter_(-1, ids, 0.0)
        rows = torch.arange(len(z), device=z.device)[:, None].expand_as(v.parent)
        is_child = v.draft.valid & (v.draft.depth > 0)
        mass[rows[is_child], v.parent[is_child], v.draft.tokens[is_child]] = 0.0
        rest = mass.sum(-1).log().float()
        return cls(largest, (values - largest[..., None]).half(), ids, child, rest)

    def dense(self, draft: Draft, vocab: int) -> Tensor:
        """[B, N, V] float32."""
        if not self.ids.shape[-1]:
            return self.values.float()
        shape = (*self.largest.shape, vocab)
        placed = torch.zeros(shape, dtype=torch.bool)
        placed.scatter_(-1, self.ids.long(), True)
        rows, nodes = (draft.valid & (draft.depth > 0)).nonzero(as_tuple=True)
        parents, tokens = draft.parents[rows, nodes], draft.tokens[rows, nodes]
        placed[rows, parents, tokens] = True
        others = (~placed).sum(-1).clamp(min=1)
        level = self.largest + self.rest - others.log()
        z = level[..., None].expand(shape).clone()
        z.scatter_(-1, self.ids.long(), self.largest[..., None] + self.values.float())
        z[rows, parents, tokens] = self.child[rows, nodes]
        return z

    def __getitem__(self, places: Tensor) -> Logits:
        return Logits(
            *(part[places] for part in (self.largest, self.values, self.ids, self.child, self.rest))
        )


PARTS = ("largest", "values", "ids", "child", "rest")


@dataclass
class Recorder(Observer):
    """Keeps what rules see of some decodes; `begin` before each, `end` behind it.

    top  logits kept in each context; 0: all.
    """

    top: int
    _cycles: dict[str, list[Tensor]] = field(default_factory=dict)
    _prompts: list[list[int]] = field(default_factory=list)
    _answers: list[int] = field(default_factory=list)
    _emitted: list[int] = field(default_factory=list)
    _steps: list[int] = field(default_factory=list)
    _before: int = 0
    _requests: Sequence[Request] = ()
    _sampled: bool = False
    _replacement: bool = True
    _chain: bool = True

    def begin(self, requests: Sequence[Request], answers: Sequence[int]) -> None:
        """The next decode is that of these requests, each a turn of one of `answers`."""
        self._before = len(self._prompts)
        self._requests = requests
        self._answers += answers
        self._steps += [0] * len(requests)

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        for request, first in zip(self._requests, token.tolist(), strict=True):
            self._prompts.append([*request.input_ids, first])

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        places = [self._before + request for request in requests]
        self._sampled, self._chain = v.draft.sampled, v.draft.chain
        self._replacement = v.draft.replacement
        kept = {
            "tokens": v.draft.tokens,
            "parents": v.draft.parents.expand_as(v.draft.tokens),
            "valid": v.draft.valid,
            "kept": path.kept,
            "drawn": token,
            "request": torch.tensor(places),
            "step": torch.tensor([self._steps[place] for place in places]),
        }
        kept |= _prefixed("target", Logits.of(v.logits, v, self.top))
        if v.draft.logits is not None and v.draft.q is not None:
            kept["q"] = v.draft.q
            kept |= _prefixed("draft", Logits.of(v.draft.logits, v, self.top))
        for name, values in kept.items():
            self._cycles.setdefault(name, []).append(values.cpu())
        for place in places:
            self._steps[place] += 1

    def end(self, generations: Sequence[Generation]) -> None:
        """The decode has ended with these generations."""
        self._emitted += [len(generation.output_ids) for generation in generations]
        for place, generation in enumerate(generations):
            self._steps[self._before + place] = len(generation.committed)

    def write(self, file: Path, sampling: Sampling, limits: Limits, **said: Any) -> None:
        """Write the file; `said`: the parts of the description that only the caller knows."""
        tensors = {name: torch.cat(parts) for name, parts in self._cycles.items()}
        ends = torch.tensor(self._steps)
        alive = tensors["step"] < ends[tensors["request"]]  # cycles behind an end are no cycles
        tensors = {name: values[alive] for name, values in tensors.items()}
        vocab = said["vocab"]
        for name in ("target.ids", "draft.ids"):
            if name in tensors:
                tensors[name] = _small(tensors[name], vocab)
        tensors |= {
            "prompt_ids": torch.tensor([token for ids in self._prompts for token in ids]).int(),
            "prompt_ends": torch.tensor([len(ids) for ids in self._prompts]).cumsum(0),
            "answer": torch.tensor(self._answers),
            "emitted": torch.tensor(self._emitted),
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
        return torch.device("cpu")

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
        screen = Screen(rules, self.requests, self.limits, torch.device("cpu"))
        firsts = torch.tensor([ids[-1] for ids in self._texts()])
        screen.on_first(torch.empty(0), firsts)
        for places in self._batches():
            v, path, token, requests = self._cycle(places)
            nothing = torch.zeros(len(places))
            screen.on_cycle(v, Decision(v.draft.valid), path, token, nothing, requests)
        count = torch.bincount(self._tensors["request"].long(), minlength=len(self.answers))
        return screen.of(count.tolist())

    def _texts(self) -> list[list[int]]:
        ids, ends = self._tensors["prompt_ids"].tolist(), self._tensors["prompt_ends"].tolist()
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _batches(self) -> Iterator[Tensor]:
        """The places of cycles that are put before the rules together: one of each request, in the
        order of their steps."""
        step, nodes = self._tensors["step"], self._tensors["tokens"].shape[1]
        rows = max(1, REPLAYED_BYTES // (4 * nodes * self.description.vocab))
        for number in range(int(step.max()) + 1 if len(step) else 0):
            yield from (step == number).nonzero()[:, 0].split(rows)

    def _cycle(self, places: Tensor) -> tuple[Verification, Walk, Tensor, list[int]]:
        held = self._tensors
        tokens, valid = held["tokens"][places].long(), held["valid"][places]
        q = held["q"][places] if self.has_q else None
        if self.description.chain:
            draft = Draft.of_chain(tokens, valid=valid, sampled=self.description.sampled, q=q)
        else:
            parents = held["parents"][places].long()
            sampled = self.description.sampled
            draft = Draft.of_parents(tokens, parents, valid=valid, sampled=sampled, q=q)
            draft.replacement = self.description.replacement
        vocab = self.description.vocab
        logits = self._logits("target", places).dense(_explicit(draft), vocab)
        if self.has_q:
            draft.logits = self._logits("draft", places).dense(_explicit(draft), vocab)
        u = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0))
        kept = held["kept"][places]
        depth = draft.depth.expand_as(tokens)
        path = Walk(kept, torch.where(kept, depth, -1).argmax(1), kept.sum(1) - 1)
        v = Verification(draft, logits, self.sampling, u)
        return v, path, held["drawn"][places].long(), held["request"][places].tolist()

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
