"""Rules inside an engine that serves: rows of the engine's batch in, kept tokens out.

The engine drafts a chain for each request and computes the target's logits behind every token of
it. `Verifier` lets each request's rule decide, unchanged, with the random numbers that the loop of
`methods.decode` would draw: where the drafts are the same, so are the tokens, at any temperature,
whatever else stands in the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from methods.decode import CycleOutcome, accept, pack_outcomes, unpack_outcomes
from methods.engine.device import upload
from methods.prompt_rng import PromptRng
from methods.rules.base import Rule
from methods.rules.verification import State, Verification
from methods.sampling import Sampling, draw
from methods.trees.draft import Draft


@dataclass(eq=False, slots=True)
class ServedSetting:
    """A bound rule and the decoding settings of the requests that share it."""

    rule: Rule
    sampling: Sampling


@dataclass(eq=False, slots=True)
class Served:
    """A request of the engine.

    key     names its random numbers: a hash of this, not the engine's id, so that a run repeats and
            all ranks agree.
    prompt  its token ids.
    state   what the rule knows of it; None before its first cycle.
    last    [1] its last token; None before its first.
    """

    key: str
    setting: ServedSetting
    prompt: Sequence[int]
    rng: PromptRng = field(repr=False)
    state: State | None = None
    last: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The target's output for a batch of B requests, one request's rows after the other's: R rows
    in all.

    logits  [R, V] raw, behind each token that was read.
    tokens  [R] int64, the token that each row has read; of each request's first row unspecified,
            below zero: no token.
    starts  the first row of each request.
    drafts  how many drafted tokens follow it.
    q       [R, V] float32, the distribution from which the token of the next row was drawn; None
            for drafts that are not drawn. Rows in front of no drafted token are unspecified.
    hidden  [R, H] final-norm states, or None.
    """

    logits: Tensor
    tokens: Tensor
    starts: Sequence[int]
    drafts: Sequence[int]
    q: Tensor | None = None
    hidden: Tensor | None = None


class Verifier:
    """Verifies the drafts of an engine; every cycle's outcome is kept until `take` reads it.
    `length` is K, `uniforms` the random numbers that the loop's drafter draws a cycle and that are
    passed over here, so that the others stay the same."""

    def __init__(self, length: int, uniforms: int, device: torch.device) -> None:
        self.nodes, self.device = length + 1, device
        self.width = self.nodes + 1 + uniforms
        self._pending: list[tuple[list[str], list[Tensor], list[str]]] = []

    def request(self, key: str, setting: ServedSetting, prompt: Sequence[int]) -> Served:
        """A request before its first token."""
        return Served(key, setting, prompt, PromptRng([key], self.width, self.device))

    def step(self, requests: Sequence[Served | None], rows: Rows) -> Tensor:
        """[B, N + 1] int64, N the longest draft: each request's tokens, then -1. Requests that are
        None have 0 in the first place. Nothing waits for the device, but for a rule that starts
        from the first token."""
        out = torch.full((len(requests), max(rows.drafts, default=0) + 1), -1, device=self.device)
        groups: dict[tuple[ServedSetting | None, bool], list[int]] = {}
        for place, request in enumerate(requests):
            key = (None, False) if request is None else (request.setting, request.last is None)
            groups.setdefault(key, []).append(place)
        for (setting, fresh), places in groups.items():
            if setting is None:
                out[places, 0] = 0
                continue
            served = [*filter(None, (requests[place] for place in places))]
            tokens = (self._first if fresh else self._cycle)(setting, served, places, rows)
            where = slice(None) if len(places) == len(requests) else places
            out[where, : tokens.shape[1]] = tokens
        return out

    def take(self) -> dict[str, list[CycleOutcome]]:
        """Key -> its cycles since the last call."""
        taken: dict[str, list[CycleOutcome]] = {}
        for keys, columns, flags in self._pending:
            for key, outcome in zip(keys, unpack_outcomes(columns, flags), strict=True):
                taken.setdefault(key, []).append(outcome)
        self._pending.clear()
        return taken

    def _first(
        self, setting: ServedSetting, served: list[Served], places: list[int], rows: Rows
    ) -> Tensor:
        """[G, 1] tokens drawn behind the prompts, as the loop draws them from the prefill."""
        logits = rows.logits[upload([rows.starts[place] for place in places], self.device)].float()
        token = draw(setting.sampling.probs(logits), self._uniforms(served)[:, -1])
        for request, last in zip(served, token.split(1), strict=True):
            request.last = last
        return token[:, None]

    def _cycle(
        self, setting: ServedSetting, served: list[Served], places: list[int], rows: Rows
    ) -> Tensor:
        """[G, n + 1] the tokens that the rule keeps of each draft and the one behind them, then
        -1."""
        u = self._uniforms(served)
        roots = [request.last for request in served if request.last is not None]
        v = self._verification(
            setting.sampling, roots, places, rows, u[:, : self.nodes], self._state(setting, served)
        )
        _, path, token, state = accept(setting.rule, v, u[:, self.nodes])
        for place, (request, last) in enumerate(zip(served, token.split(1), strict=True)):
            request.last = last
            request.state = {name: value[place : place + 1] for name, value in state.items()}
        self._pending.append(
            ([request.key for request in served], pack_outcomes(v, path, token), list(path.flags))
        )
        tokens = torch.where(path.kept, v.draft.tokens, -1)[:, 1:]
        tokens = torch.cat(
            [tokens, torch.full_like(tokens[:, :1] if tokens.shape[1] else token[:, None], -1)], 1
        )
        return tokens.scatter(1, path.length[:, None], token[:, None])

    def _verification(
        self,
        sampling: Sampling,
        last: Sequence[Tensor],
        places: Sequence[int],
        rows: Rows,
        u: Tensor,
        state: State,
    ) -> Verification:
        """What a rule sees of the requests at `places`, which drafted behind the tokens `last`."""
        drafts = [rows.drafts[place] for place in places]
        nodes = max(drafts) + 1
        table = [
            [rows.starts[place] + min(node, count) for node in range(nodes)]
            for place, count in zip(places, drafts, strict=True)
        ]
        index = upload(table, self.device)  # [G, N]
        tokens = torch.cat([torch.cat(list(last))[:, None], rows.tokens[index[:, 1:]]], 1)
        inside = torch.arange(nodes, device=self.device) <= upload(drafts, self.device)[:, None]
        valid = (inside & (tokens >= 0)).cumprod(1).bool()
        tokens, logits = tokens.clamp(min=0), rows.logits[index].float()
        q = draft_logits = None
        if rows.q is not None and not sampling.greedy:
            drawn = rows.q[index]
            token_q = drawn[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
            q = torch.cat([torch.ones_like(drawn[:, :1, 0]), token_q], 1)
            draft_logits = drawn.log() * sampling.temperature
        draft = Draft.of_chain(tokens, valid=valid, sampled=q is not None, logits=draft_logits, q=q)
        hidden = None if rows.hidden is None else rows.hidden[index]
        return Verification(draft, logits, sampling, u[:, :nodes], hidden, state)

    def _uniforms(self, served: Sequence[Served]) -> Tensor:
        return torch.cat([request.rng.cycle() for request in served])

    def _state(self, setting: ServedSetting, served: Sequence[Served]) -> State:
        """The rule's state of these requests; of new ones that which their prompt and first token
        give."""
        has_own = type(setting.rule).start is not Rule.start
        for request in served if has_own else ():
            if request.state is None and request.last is not None:
                request.state = setting.rule.start(
                    [[*request.prompt, int(request.last)]], self.device
                )
        states = [request.state or {} for request in served]
        return {name: torch.cat([state[name] for state in states]) for name in states[0]}
