"""Record every verified position of a decode, in an untimed pass.

A row is a verified position: every node of a draft, and after the last kept one the token that was
drawn. Positions past the end of an answer are left out. Columns:

  cycle               number of the cycle in the answer, from 0
  node, parent, depth place in the cycle's tree; the root is node 0 and has no row. The drawn
                      token is node -1, its parent the last kept node
  rank                siblings before the node
  token               token id
  top1 … top5, p1 … p5   the target's likeliest tokens in the context and their raw probabilities;
                         z1, z2: logits of two
  draft_top1 … draft_top5, draft_q1 … draft_q5   the same of the draft; −1 and NaN where it has no
                                                 distribution
  p0, p, q            probability of the token: raw under the target, processed (a point mass at
                      temperature 0), and under the draft as `Draft.q`
  js, js_released, kl, tv   divergence of target and draft in the context, raw softmax, as
                            `methods.rules.fsd` (nats; tv
                      a share)
  u                   the random number of the test or draw
  accept              the rule accepts the token if it is tested
  strict (S)          the lossless test accepts it with the same u, if it is tested
  argmax (A)          the token is the target's argmax
  by_threshold (R)    the rule accepts it only because of its threshold (`Rule.by_threshold`)
  clause              code of `methods.rules.walk.Clause`
  score, inside, outside   the rule's `threshold_view`

and what the rule itself adds (`Rule.statistics`). A number that does not exist, such as q without a
draft distribution, is NaN; accept, strict and by_threshold of a drawn token are False.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from methods.batch import Generation
from methods.decode import Limits, Observer, Request
from methods.distributions import divergences
from methods.likelihood import watched
from methods.method import Method
from methods.rules.base import Relation, Rule
from methods.rules.verification import NamedTensors, Verification
from methods.rules.walk import Clause, Decision, Walk, clauses

DIVERGENCES: tuple[Literal["js", "js_released", "kl", "tv"], ...] = (
    "js",
    "js_released",
    "kl",
    "tv",
)

TOP = 5
"""So many of the likeliest tokens of target and draft are recorded."""
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TracedThreshold:
    """The threshold that a trace was made at: `score relation value`.

    name      the rule's option.
    relation  how the score is compared with it.
    value     where it stood.
    """

    name: str
    relation: Relation
    value: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Every verified position of a generation.

    columns    name -> [rows], in the order of the cycles.
    threshold  None for a rule without a threshold.
    """

    columns: Columns
    threshold: TracedThreshold | None


class TraceRecorder(Observer):
    """An observer that collects the columns of every cycle.

    cycles     of each request: name -> [N] per cycle, the draft nodes without the root, then the
               drawn token.
    threshold  the rule's, None for a rule without one.
    """

    def __init__(self, rule: Rule):
        self.rule = rule
        self.cycles: list[list[Columns]] = []
        self.threshold: TracedThreshold | None = None

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        self.cycles = [[] for _ in token]

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        columns = {
            **_target_columns(v, path.last, token),
            **_draft_columns(v, path.last),
            **_place_columns(v, path.last),
            **self._rule_columns(v, decision, path),
        }
        columns["argmax"] = _with_drawn(v.is_argmax, token == v.at(v.argmax, path.last))
        columns["u"] = _with_drawn(v.u, u)
        columns["valid"] = _with_drawn(v.draft.valid, torch.ones_like(u))
        arrays = {name: column.cpu().numpy() for name, column in columns.items()}
        for row, request in enumerate(requests):
            self.cycles[request].append({name: array[row] for name, array in arrays.items()})

    def _rule_columns(self, v: Verification, decision: Decision, path: Walk) -> NamedTensors:
        drawn = torch.full_like(path.last, Clause.DRAWN)
        columns = {
            "accept": _with_drawn(decision.accept),
            "strict": _with_drawn(decision.lossless),
            "clause": _with_drawn(clauses(v, decision, path), drawn),
        }
        if v.draft.nodes == 1:
            return columns | {"by_threshold": torch.zeros_like(columns["accept"])}
        columns["by_threshold"] = _with_drawn(self.rule.by_threshold(v))
        if (view := self.rule.threshold_view(v)) is not None:
            self.threshold = TracedThreshold(view.name, view.relation, float(view.value))
            columns |= {
                "score": _with_drawn(view.score),
                "inside": _with_drawn(view.inside),
                "outside": _with_drawn(view.outside),
            }
        return columns | {
            name: _with_drawn(numbers) for name, numbers in self.rule.statistics(v).items()
        }


def generate_traced(
    method: Method, requests: Sequence[Request], limits: Limits
) -> list[Generation]:
    """Decode a batch as `generate_with_nll` does, with the same tokens; record every cycle of every
    row until its end, and set each generation's `trace`.

    Drafts carry their distribution where the drafter has one; that changes no token."""
    recorder = TraceRecorder(method.rule)
    method = replace(method, draft=replace(method.draft, needs_q=method.drafter.has_q))
    generations = watched(method, requests, limits, recorder)
    for generation, cycles in zip(generations, recorder.cycles, strict=True):
        columns = _joined(cycles[: len(generation.committed)], sum(generation.committed[-1:]))
        generation.trace = Trace(columns, recorder.threshold)
    return generations


def _joined(cycles: Sequence[Columns], last: int) -> Columns:
    """The valid positions of one row, all cycles in order, up to the answer's end: the last cycle
    emitted `last` tokens, and positions deeper than that are dropped."""
    if not cycles:
        return {}
    masks = [cycle["valid"] for cycle in cycles]
    depth = cycles[-1]["depth"]
    if depth[-1] > last:  # the drawn token's depth: the end cut the last cycle
        masks[-1] = masks[-1] & (depth <= last)
    columns: Columns = {}
    for name in dict.fromkeys(name for cycle in cycles for name in cycle if name != "valid"):
        parts = [
            cycle[name][mask] if name in cycle else np.full(mask.sum(), np.nan, np.float32)
            for cycle, mask in zip(cycles, masks, strict=True)
        ]
        columns[name] = np.concatenate(parts)
    columns["cycle"] = np.repeat(
        np.arange(len(cycles), dtype=np.int32), [mask.sum() for mask in masks]
    )
    return columns


def _with_drawn(per_node: Tensor, drawn: Tensor | None = None) -> Tensor:
    """[B, N] per node -> [B, N]: without the root, and the drawn token's value (default NaN, False)
    at the end."""
    if drawn is None:
        drawn = torch.full_like(
            per_node[:, 0], False if per_node.dtype == torch.bool else torch.nan
        )
    return torch.cat([per_node[:, 1:], drawn[:, None].to(per_node.dtype)], 1)


def _of_contexts(
    v: Verification, per_context: Tensor, last: Tensor, expanded: Tensor | None = None
) -> list[Tensor]:
    """[B, N, K] per context -> K columns [B, N]: the context of each node but the root, and that of
    the drawn token. Where not `expanded` [B], the drawn token's are -1 or NaN. One gather for all
    K: a cycle has dozens of columns."""
    drawn = v.at(per_context, last)
    if expanded is not None:
        drawn = drawn.where(expanded[:, None], torch.nan if drawn.is_floating_point() else -1)
    return list(torch.cat([v.at_parent(per_context)[:, 1:], drawn[:, None]], 1).unbind(-1))


def _target_columns(v: Verification, last: Tensor, token: Tensor) -> NamedTensors:
    """What the target's distribution says of each token and its context."""
    (z, ids), log_mass = v.top2, v.log_mass
    places = range(1, min(TOP, v.logits.shape[-1]) + 1)
    further, others = v.logits.topk(len(places))
    shares = (torch.cat([z, further[..., 2:]], -1) - log_mass[..., None]).exp()
    names = ["z1", "z2", *(f"p{place}" for place in places)]
    columns = dict(zip(names, _of_contexts(v, torch.cat([z, shares], -1), last), strict=True))
    tokens = _of_contexts(v, torch.cat([ids, others[..., 2:]], -1), last)
    columns |= {f"top{place}": tokens[place - 1] for place in places}
    drawn_logit = v.at(v.logits, last).gather(1, token[:, None])[:, 0]
    columns["token"] = _with_drawn(v.draft.tokens, token)
    columns["p0"] = _with_drawn(
        (v.of_token(v.logits) - v.at_parent(log_mass)).exp(),
        (drawn_logit - v.at(log_mass, last)).exp(),
    )
    columns["p"] = _with_drawn(v.p_token, v.p_at(last).gather(1, token[:, None])[:, 0])
    return columns


def _draft_columns(v: Verification, last: Tensor) -> NamedTensors:
    """NaN without a draft distribution, and in contexts that the drafter did not expand."""
    unknown = torch.full_like(v.u, torch.nan)
    columns = {"q": _with_drawn(unknown if v.draft.q is None else v.draft.q.to(v.u.dtype))}
    places = range(1, min(TOP, v.logits.shape[-1]) + 1)
    names = [*DIVERGENCES, *(f"draft_q{place}" for place in places)]
    if v.draft.logits is None or v.draft.nodes == 1:
        columns |= {f"draft_top{place}": torch.full_like(v.draft.tokens, -1) for place in places}
        return columns | dict.fromkeys(names, unknown)
    p, q = v.logits.softmax(-1), v.draft.logits.softmax(-1)
    expanded = v.children_of(last).any(1)
    shares, ids = q.topk(len(places))
    numbers = torch.cat([torch.stack([*divergences(DIVERGENCES, p, q).values()], -1), shares], -1)
    columns |= dict(zip(names, _of_contexts(v, numbers, last, expanded), strict=True))
    tokens = _of_contexts(v, ids, last, expanded)
    return columns | {f"draft_top{place}": tokens[place - 1] for place in places}


def _place_columns(v: Verification, last: Tensor) -> NamedTensors:
    """Where each position stands in the cycle's tree."""
    tokens, ones = v.draft.tokens, torch.ones_like(last)
    node = torch.arange(v.draft.nodes, device=last.device).expand(tokens.shape)
    depth = v.draft.depth.expand(tokens.shape)
    return {
        "node": _with_drawn(node, -ones),
        "parent": _with_drawn(v.parent, last),
        "depth": _with_drawn(depth, v.at(depth, last) + 1),
        "rank": _with_drawn(v.earlier_siblings.sum(-1), 0 * ones),
    }
