"""Random drafts with the target's answer to them, and what a rule makes of one as exact
probabilities."""

from __future__ import annotations

from collections.abc import Callable
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
    tokens = torch.zeros_like(parents)
    for row, own in enumerate(parents.tolist()):
        for i in range(1, len(own)):
            z = draft_logits[row, own[i]]
            if sampled:
                tokens[row, i] = torch.multinomial(sampling.probs(z), 1, generator=g)[0]
            else:
                tokens[row, i] = z.argsort(descending=True)[own[:i].count(own[i])]
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


def ends(rule: Rule, v: Verification) -> Tensor:
    """[B, N] probability that a node is the last kept one, all u integrated out."""
    accept, left = acceptance(rule, v), torch.zeros(v.u.shape, dtype=torch.float64)
    left[:, 0] = 1.0  # kept, and of its children none so far
    for node in range(1, v.draft.nodes):
        parent = v.parent[:, node, None]
        reached = left.gather(1, parent)
        kept = reached * accept[:, node, None]
        left[:, node] = kept[:, 0]
        left.scatter_(1, parent, reached - kept)
    return left


def first_token(rule: Rule, v: Verification) -> Tensor:
    """[B, V] distribution of the first token emitted after the root, all randomness integrated out
    (float64)."""
    last = ends(rule, v)
    kept = (last[:, None] @ v.draft.ancestors.double())[:, 0]
    correction = rule.emit(v, torch.zeros(len(v.u), dtype=torch.long)).double()
    law = last[:, :1] * correction / correction.sum(-1, keepdim=True)
    return law.scatter_add(1, v.draft.tokens, torch.where(v.draft.depth == 1, kept, 0.0))


def one_token_each(
    logits: Tensor, draft_logits: Tensor, sampling: Sampling, sampled: bool = True
) -> Verification:
    """Contexts of one drafted token each: a row for every token of every row. `logits` and
    `draft_logits` [B, V]. Candidates that were not sampled carry no distribution."""
    rows, vocab = logits.shape
    token = torch.arange(vocab).repeat(rows)
    tokens = torch.stack([torch.zeros_like(token), token], 1)
    z, draft_z = (
        x.repeat_interleave(vocab, 0)[:, None].expand(-1, 2, -1) for x in (logits, draft_logits)
    )
    draft = Draft.of_chain(tokens)
    if sampled:
        q = sampling.probs(draft_logits).flatten()
        own_q = torch.stack([torch.ones_like(q), q], 1)
        draft = Draft.of_chain(tokens, sampled=not sampling.greedy, logits=draft_z, q=own_q)
    return Verification(draft, z, sampling, torch.zeros(tokens.shape))


def every_token(
    rule: Rule,
    logits: Tensor,
    draft_logits: Tensor,
    sampling: Sampling,
    prepare: Callable[[Verification], Verification] = lambda v: v,
) -> Tensor:
    """[B, V] distribution of the first token in such contexts, with the drafted token integrated
    out too: every token that may be drawn, weighted by q. `prepare` adds states."""
    rows, vocab = logits.shape
    v = prepare(one_token_each(logits, draft_logits, sampling))
    law = first_token(rule, v).view(rows, vocab, vocab)
    return (sampling.probs(draft_logits).double()[:, None] @ law)[:, 0]
