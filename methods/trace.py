"""What a decode's verification looked like, position by position: a rule that takes notes, for passes without a clock.

A row is a verified position: every node of a draft, and behind the last kept one the token that was drawn; what lies
behind the end of an answer is left out. Columns
  cycle, node, parent, depth, rank   the cycle of the answer and the place in its tree, where the root is node 0 and has
                      no row; rank counts the siblings before it. The drawn token is node -1 behind the last kept node
  token               its id
  top1, top2, z1, z2, p1, p2   the target's two likeliest tokens there, their raw logits and raw probabilities
  p0, p, q            probability of the token: raw under the target, processed (at temperature 0 a point mass), and
                      under the draft as `Draft.q`
  js, js_released, kl, tv   divergence of target and draft there, raw softmax, as `methods.rules.fsd` (nats; tv a share)
  u                   the random number of its test
  accept, strict      what the rule, and the strict rule, say of the token if it is tested
  clause              strict: kept, by the strict rule as well. relaxed: kept by the relaxation alone. rejected: tested
                      and not kept. unreached: never tested. drawn: no draft token, correction or bonus
  score, inside, outside   the rule's `threshold_view`
and what the rule itself adds (`Rule.statistics`). What does not exist, such as q without a draft distribution, is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.decode import Generation, Limits, Request, generate
from methods.method import Method
from methods.rules.base import Rule
from methods.rules.fsd import divergence
from methods.rules.verification import Verification
from methods.rules.walk import Decision, walk

CLAUSES = ("strict", "relaxed", "rejected", "unreached", "drawn")
STRICT, RELAXED, REJECTED, UNREACHED, DRAWN = range(len(CLAUSES))
DIVERGENCES = ("js", "js_released", "kl", "tv")

Columns = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Setting:
    """The threshold that a trace was made at: it was `score relation value`."""

    name: str
    relation: str
    value: float


class Recorder:
    """Stands in for a method's rule and decides as it does; `cycles` holds the columns [B, N] of each cycle."""

    def __init__(self, rule: Rule):
        self.rule, self.cycles, self.setting = rule, [], None
        self._decision: Decision | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rule, name)

    def decide(self, v: Verification) -> Decision:
        self._decision = self.rule.decide(v)
        return self._decision

    def next_token(self, v: Verification, node: Tensor, u: Tensor) -> Tensor:
        token = self.rule.next_token(v, node, u)
        found = {**_of_target(v, node, token), **_of_draft(v, node), **_of_decision(v, node, self._decision)}
        if v.draft.nodes > 1:
            dial = self.rule.threshold_view(v)
            if dial is not None:
                self.setting = Setting(dial.name, dial.relation, float(dial.value))
                found |= {name: _with_drawn(getattr(dial, name)) for name in ("score", "inside", "outside")}
            found |= {name: _with_drawn(numbers) for name, numbers in self.rule.statistics(v).items()}
        found["u"] = torch.cat([v.u[:, 1:], u[:, None]], 1)
        found["valid"] = torch.cat([v.draft.valid[:, 1:], torch.ones_like(u, dtype=torch.bool)[:, None]], 1)
        self.cycles.append({name: column.cpu().numpy() for name, column in found.items()})
        return token


@dataclass(frozen=True, slots=True)
class Traced:
    """One generation with its trace: columns [rows], in the order of the cycles. `setting` is None for a rule without a
    threshold."""

    generation: Generation
    columns: Columns
    setting: Setting | None


def traced(method: Method, requests: Sequence[Request], limits: Limits) -> list[Traced]:
    """Decode a batch as `generate` does, with the same tokens, and note every cycle of every row until its end.

    Drafts are made to carry their distribution where the drafter has one; that changes no token."""
    recorder = Recorder(method.rule)
    noting = replace(method, rule=recorder, draft=replace(method.draft, needs_q=method.drafter.has_q))
    generations = generate(noting, requests, limits)
    return [Traced(one, _rows(recorder.cycles[:len(one.committed)], row, sum(one.committed[-1:])), recorder.setting)
            for row, one in enumerate(generations)]


def decoder(found: dict[str, Traced]) -> Callable[[Method, Sequence[Request], Limits], list[Generation]]:
    """`generate` for a caller that knows nothing of traces; they end up in `found`, by the name of the stream."""
    def decode(method: Method, requests: Sequence[Request], limits: Limits) -> list[Generation]:
        traces = traced(method, requests, limits)
        found.update(zip((request.key for request in requests), traces, strict=True))
        return [trace.generation for trace in traces]
    return decode


def _rows(cycles: Sequence[Columns], row: int, last: int) -> Columns:
    """The valid positions of one row of the batch, all cycles one behind the other, up to the answer's end: where that
    cuts the last cycle, which emitted `last` tokens, what lies deeper was never said."""
    if not cycles:
        return {}
    found: Columns = {}
    masks = [cycle["valid"][row] for cycle in cycles]
    depth = cycles[-1]["depth"][row]
    if depth[-1] > last:  # of the drawn token, which stands behind all that was kept
        masks[-1] = masks[-1] & (depth <= last)
    names = list(dict.fromkeys(name for cycle in cycles for name in cycle if name != "valid"))
    for name in names:
        parts = [cycle[name][row][mask] if name in cycle else np.full(mask.sum(), np.nan, np.float32)
                 for cycle, mask in zip(cycles, masks, strict=True)]
        found[name] = np.concatenate(parts)
    found["cycle"] = np.repeat(np.arange(len(cycles), dtype=np.int32), [mask.sum() for mask in masks])
    return found


def _with_drawn(per_node: Tensor, drawn: Tensor | None = None) -> Tensor:
    """[B, N] per node -> [B, N]: without the root, and the drawn token's value (default NaN, False) at the end."""
    if drawn is None:
        drawn = torch.full_like(per_node[:, 0], False if per_node.dtype == torch.bool else torch.nan)
    return torch.cat([per_node[:, 1:], drawn[:, None].to(per_node.dtype)], 1)


def _of_target(v: Verification, node: Tensor, token: Tensor) -> dict[str, Tensor]:
    (z, ids), mass = v.top2, v.logits.logsumexp(-1)
    contexts = {"top1": ids[..., 0], "top2": ids[..., 1], "z1": z[..., 0], "z2": z[..., 1],
                "p1": (z[..., 0] - mass).exp(), "p2": (z[..., 1] - mass).exp()}
    found = {name: _with_drawn(v.at_parent(x), v.at(x, node)) for name, x in contexts.items()}
    here = v.at(v.logits, node).gather(1, token[:, None])[:, 0]
    found["token"] = _with_drawn(v.draft.tokens, token)
    found["p0"] = _with_drawn((v.of_token(v.logits) - v.at_parent(mass)).exp(), (here - v.at(mass, node)).exp())
    found["p"] = _with_drawn(v.p_token, v.p_at(node).gather(1, token[:, None])[:, 0])
    return found


def _of_draft(v: Verification, node: Tensor) -> dict[str, Tensor]:
    """NaN without a distribution; what a drafter did not expand is unspecified and becomes NaN as well."""
    unknown = torch.full_like(v.u, torch.nan)
    found = {"q": _with_drawn(unknown if v.draft.q is None else v.draft.q.to(v.u.dtype))}
    if v.draft.logits is None or v.draft.nodes == 1:
        return found | dict.fromkeys(DIVERGENCES, unknown)
    p, q = v.logits.softmax(-1), v.draft.logits.softmax(-1)
    expanded = v.children_of(node).any(1)
    for kind in DIVERGENCES:
        apart = divergence(kind, p, q)
        found[kind] = _with_drawn(v.at_parent(apart), torch.where(expanded, v.at(apart, node), torch.nan))
    return found


def _of_decision(v: Verification, node: Tensor, decision: Decision) -> dict[str, Tensor]:
    draft, kept = v.draft, walk(v, decision).kept
    strict = decision.accept if decision.lossless_accept is None else decision.lossless_accept
    place = torch.arange(draft.nodes, device=node.device).expand(draft.tokens.shape)
    behind_kept = (v.earlier_siblings & kept[:, None, :]).any(-1)
    tested = v.at_parent(kept) & ~behind_kept
    clause = torch.where(kept, torch.where(strict, STRICT, RELAXED), torch.where(tested, REJECTED, UNREACHED))
    depth, one = draft.depth.expand(draft.tokens.shape), torch.ones_like(node)
    return {"node": _with_drawn(place, -one), "parent": _with_drawn(v.parent, node),
            "depth": _with_drawn(depth, v.at(depth, node) + 1),
            "rank": _with_drawn(v.earlier_siblings.sum(-1), 0 * one), "clause": _with_drawn(clause, DRAWN * one),
            "accept": _with_drawn(decision.accept), "strict": _with_drawn(strict)}
