"""From a verified draft to the kept path and the token after it."""

from __future__ import annotations

from torch import Tensor

from methods.engine.cache import SlotCache
from methods.rules.base import Rule
from methods.rules.verification import State, Verification
from methods.rules.walk import Decision, Walk, walk
from methods.sampling import Sampling
from methods.trees.draft import Draft

Settled = tuple[Decision, Walk, Tensor, State]


def accept(rule: Rule, v: Verification, u: Tensor) -> Settled:
    """The rule's decision, the kept path, the token [B] after it, drawn with `u` [B], and the rule's state behind it.
    Nothing here waits for the device."""
    decision = rule.decide(v)
    path = walk(v, decision)
    token = rule.next_token(v, path.last, u)
    return decision, path, token, rule.next_state(v, path, token)


def settle(rule: Rule, v: Verification, u: Tensor, cache: SlotCache, *, observed: bool) -> Settled:
    """`accept`, as a replayed graph where the target's cache has graphs; not where it is observed: an observer may read
    what the rule noted in `v`."""
    if cache.graphs is None or observed:
        return accept(rule, v, u)
    return cache.graphs.run(_accept_parts, rule, v.sampling, v.draft, v.logits, v.u, v.hidden_or_none, v.state, u)


def _accept_parts(rule: Rule, sampling: Sampling, draft: Draft, logits: Tensor, u: Tensor, hidden: Tensor | None,
                  state: State, after: Tensor) -> Settled:
    return accept(rule, Verification(draft, logits, sampling, u, hidden, state), after)
