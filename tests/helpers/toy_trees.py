"""Two models that look at the last token alone, and every draft that can be drawn from one of them,
in float64."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.rules.verification import Verification
from methods.sampling import Sampling
from methods.trees.draft import Draft
from methods.trees.static import regular

Law = dict[tuple[int, ...], float]
"""Sequence of emitted tokens -> probability."""


@dataclass(frozen=True)
class Toy:
    """target, draft: raw logits [V, V] float64 of the token after each token."""

    target: Tensor
    draft: Tensor
    sampling: Sampling

    @classmethod
    def random(cls, seed: int, sampling: Sampling, vocab: int = 3) -> Toy:
        g = torch.Generator().manual_seed(seed)
        noise = torch.randn(2, vocab, vocab, generator=g, dtype=torch.float64)
        target = 1.5 * noise[0]
        return cls(target, 0.5 * target + noise[1], sampling)

    def drafts(
        self, branching: tuple[int, ...], depth: int, replacement: bool
    ) -> tuple[Verification, Tensor]:
        """Every draft behind token 0, one a row, and its probability [B]. u is 0."""
        shape, q = regular(branching, depth), self.sampling.probs(self.draft)
        found: list[tuple[list[int], list[bool], float]] = [([0], [True], 1.0)]
        for node in range(1, shape.nodes):
            found = [more for row in found for more in _with_node(row, node, shape, q, replacement)]
        tokens, valid = (torch.tensor([row[i] for row in found]) for i in (0, 1))
        own = q[tokens[:, list(shape.parents)], tokens]
        own[:, 0] = 1.0
        parents, logits = torch.tensor([shape.parents]), self.draft[tokens]
        given = {"valid": valid, "sampled": True, "logits": logits, "q": own}
        if max(shape.widths) > 1:
            every = parents.expand(len(tokens), -1)
            draft = Draft.of_parents(tokens, every, width=max(shape.widths), **given)
            draft.replacement = replacement
        else:
            draft = Draft.of_chain(tokens, **given)
        u = torch.zeros(tokens.shape, dtype=torch.float64)
        v = Verification(draft, self.target[tokens], self.sampling, u)
        return v, torch.tensor([row[2] for row in found], dtype=torch.float64)

    def law(self, tokens: int) -> Law:
        """The target's own, of sequences of that many tokens after token 0."""
        return self.continued({(): 1.0}, tokens)

    def continued(self, law: Law, tokens: int) -> Law:
        """Sequences continued by the target, or cut, to that many tokens."""
        p, out = self.sampling.probs(self.target).tolist(), Counter()
        queue = list(law.items())
        while queue:
            path, mass = queue.pop()
            if len(path) >= tokens:
                out[path[:tokens]] += mass
                continue
            last = path[-1] if path else 0
            queue += [
                ((*path, token), mass * share) for token, share in enumerate(p[last]) if share
            ]
        return out


def _with_node(
    row,
    node,
    shape,
    q,
    replacement,
):
    tokens, valid, mass = row
    parent = shape.parents[node]
    left = q[tokens[parent]].clone()
    if not replacement:
        left[[tokens[i] for i in range(1, node) if shape.parents[i] == parent]] = 0.0
    if not valid[parent] or left.sum() == 0:
        return [([*tokens, 0], [*valid, False], mass)]
    return [
        ([*tokens, token], [*valid, True], mass * float(share))
        for token, share in enumerate(left / left.sum())
        if share > 0
    ]


def total_variation(one: Law, other: Law) -> float:
    paths = one.keys() | other.keys()
    return sum(abs(one.get(path, 0.0) - other.get(path, 0.0)) for path in paths) / 2


def emitted_law(v: Verification, mass: Tensor, stops: Tensor, weights: list[Tensor]) -> Law:
    """Law of the tokens of one cycle: `stops` [B, N] probability that the node is the last kept one
    of its draft, `weights` for each node [B, V], unnormalised, of the token after it."""
    law: Law = Counter()
    ancestors = v.draft.ancestors.expand(len(mass), -1, -1)
    for row, node in stops.nonzero().tolist():
        path = v.draft.tokens[row][ancestors[row, node]][1:].tolist()
        shares = weights[node][row] / weights[node][row].sum()
        for token in shares.nonzero()[:, 0].tolist():
            law[*path, token] += float(mass[row] * stops[row, node] * shares[token])
    return law


def mean_length(v: Verification, mass: Tensor, stops: Tensor) -> float:
    """Expected number of kept tokens."""
    return float((mass[:, None] * stops * v.draft.depth).sum())
