"""Random drafts with the target's answer to them, and what a rule makes of one as exact
probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from methods.distortion import with_u
from methods.rules.base import Rule
from methods.rules.verification import Verification
from methods.sampling import Sampling
from methods.trees.draft import Draft


def random_case(
    seed: int,
    sampling: Sampling,
    *,
    sampled: bool,
    tree: bool,
    rows: int = 8,
    nodes: int = 9,
    vocab: int = 12,
    shift: float = 4.0,
) -> Verification:
    """Draft and target logits that agree about half the time, siblings best first, some rows with
    padding nodes.

    Contexts without children get NaN as draft logits: nobody may read them."""
    g = torch.Generator().manual_seed(seed)
    base = 2.0 * torch.randn(rows, nodes, vocab, generator=g)
    draft_logits, logits = (base + 0.8 * torch.randn(base.shape, generator=g) for _ in range(2))
    logits = logits + shift
    parents = torch.full((rows, nodes), -1)
    for i in range(1, nodes):  # a parent's index is smaller; several nodes often share one
        parents[:, i] = (torch.rand(rows, generator=g) ** 2 * i).long() if tree else i - 1
    valid = torch.ones(rows, nodes, dtype=torch.bool)
    for row in range(0, rows, 3):
        # a suffix, so the children of an invalid node are invalid
        valid[row, nodes - 3 - row % 4 :] = False
    tokens = _tokens(parents, draft_logits, sampling, sampled, g)
    q = sampling.probs(draft_logits) if sampled else draft_logits.softmax(-1)
    own_q = torch.ones(rows, nodes)
    own_q[:, 1:] = q[torch.arange(rows)[:, None], parents[:, 1:], tokens[:, 1:]]
    for row in range(rows):
        leaves = set(range(nodes)) - set(parents[row][valid[row]].tolist())
        draft_logits[row, sorted(leaves)] = torch.nan
    u = torch.rand(rows, nodes, generator=g)
    make = partial(Draft.of_parents, tokens, parents) if tree else partial(Draft.of_chain, tokens)
    draft = make(valid=valid, sampled=sampled, logits=draft_logits, q=own_q)
    return Verification(draft, logits, sampling, u)


def _tokens(parents, draft_logits, sampling, sampled, g):
    rows, nodes = parents.shape
    tokens = torch.zeros(rows, nodes, dtype=torch.long)
    for row in range(rows):
        for i in range(1, nodes):
            parent = int(parents[row, i])
            rank = int((parents[row, :i] == parent).sum())
            if sampled:
                probs = sampling.probs(draft_logits[row, parent])
                tokens[row, i] = torch.multinomial(probs, 1, generator=g)[0]
            else:
                tokens[row, i] = draft_logits[row, parent].argsort(descending=True)[rank]
    return tokens


def acceptance(rule: Rule, v: Verification) -> Tensor:
    """[B, N] probability that a node is kept when it is tested: the largest u that accepts it, by
    bisection.

    Sound because every test is monotone: a smaller u never rejects what a larger one accepts."""
    low, high = torch.zeros_like(v.u), torch.ones_like(v.u)
    for _ in range(24):
        middle = (low + high) / 2
        accept = rule.decide(with_u(v, middle)).accept & v.draft.valid
        low, high = torch.where(accept, middle, low), torch.where(accept, high, middle)
    return torch.where(high == 1.0, low.round(decimals=6), high).double()


def outcomes(rule: Rule, v: Verification) -> list[dict[tuple[int, ...], float]]:
    """For each row: path of kept nodes -> its probability, all u integrated out."""
    probability = acceptance(rule, v).tolist()
    parents = v.draft.parents.expand(v.draft.tokens.shape).tolist()
    valid = v.draft.valid.tolist()
    return [_paths(probability[row], parents[row], valid[row]) for row in range(len(parents))]


def _paths(probability, parents, valid):
    found: dict[tuple[int, ...], float] = {}
    queue = [((0,), 1.0)]
    while queue:
        path, mass = queue.pop()
        for node, parent in enumerate(parents):
            if parent == path[-1] and valid[node] and node > 0:
                queue.append(((*path, node), mass * probability[node]))
                mass *= 1.0 - probability[node]
        found[path] = mass
    return {path: mass for path, mass in found.items() if mass > 0}


def first_token(
    rule: Rule, v: Verification, found: list[dict[tuple[int, ...], float]] | None = None
) -> Tensor:
    """[B, V] distribution of the first token emitted after the root, all randomness integrated out
    (float64).

    `found`: the outcomes, where they are at hand."""
    root = torch.zeros(len(v.u), dtype=torch.long)
    correction = rule.emit(v, root).double()
    correction = correction / correction.sum(-1, keepdim=True)
    marginal = torch.zeros_like(correction)
    for row, paths in enumerate(found or outcomes(rule, v)):
        for path, mass in paths.items():
            if len(path) == 1:
                marginal[row] += mass * correction[row]
            else:
                marginal[row, v.draft.tokens[row, path[1]]] += mass
    return marginal


@dataclass
class OneToken:
    """Contexts with one drafted token each.

    accept  [B, V] probability of accepting the token.
    emit    [B, V, V] distribution of the token after a rejection of it.
    q       [B, V] probability of drafting it.
    p       [B, V] processed target distribution.
    """

    accept: Tensor
    emit: Tensor
    q: Tensor
    p: Tensor

    @property
    def emitted(self) -> Tensor:
        """[B, V] distribution of the first emitted token, float64."""
        rejected = (self.q * (1.0 - self.accept))[:, None, :] @ self.emit
        return self.q * self.accept + rejected[:, 0]

    @property
    def bias(self) -> float:
        """Mean total variation between the first emitted token and p."""
        return float((self.emitted - self.p).abs().sum(-1).mean() / 2)

    @property
    def rate(self) -> float:
        """Mean probability of acceptance."""
        return float((self.q * self.accept).sum(-1).mean())


def contexts(seed: int, count: int, vocab: int = 12) -> tuple[Tensor, Tensor]:
    """Raw logits [B, V] of target and draft that agree about half the time."""
    g = torch.Generator().manual_seed(seed)
    base = 2.0 * torch.randn(count, vocab, generator=g)
    target, draft = (base + 0.8 * torch.randn(base.shape, generator=g) for _ in range(2))
    return target, draft


def every_token(
    rule: Rule,
    logits: Tensor,
    draft_logits: Tensor,
    sampling: Sampling,
    sampled: bool = True,
    prepare: Callable[[Verification], Verification] = lambda v: v,
) -> OneToken:
    """`logits` and `draft_logits` [B, V]. Deterministic drafts (`sampled=False`) carry no
    distribution. `prepare` adds states."""
    rows, vocab = logits.shape
    token = torch.arange(vocab).repeat(rows)
    tokens = torch.stack([torch.zeros_like(token), token], 1)
    z, draft_z = (
        x.repeat_interleave(vocab, 0)[:, None].expand(-1, 2, -1) for x in (logits, draft_logits)
    )
    q = sampling.probs(draft_logits)
    own_q = torch.stack([torch.ones(rows * vocab), q.flatten()], 1)
    needs_q = sampled or rule.needs_q(sampling)
    draft = Draft.of_chain(
        tokens,
        sampled=sampled and not sampling.greedy,
        logits=draft_z if needs_q else None,
        q=own_q if needs_q else None,
    )
    v = prepare(Verification(draft, z, sampling, torch.zeros(tokens.shape)))
    emit = rule.emit(v, torch.zeros(len(token), dtype=torch.long)).double()
    emit = emit / emit.sum(-1, keepdim=True)
    accept = acceptance(rule, v)[:, 1]
    p = sampling.probs(logits).double()
    return OneToken(accept.view(rows, vocab), emit.view(rows, vocab, vocab), q.double(), p)
