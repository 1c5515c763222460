"""The relaxed rules of DropMatch, ARC-Decode, AutoJudge, Judge and of coarse-graining once more: float64, straight from
the formulas, one context and one child at a time. `walk` and the residual rules are those of rule_reference.py."""

from __future__ import annotations

import numpy as np

from tests.helpers.rule_reference import Child, Context


def coarse(context: Context, children: list[Child], groups: list[list[int]],
           token: str) -> tuple[Child | None, np.ndarray]:
    """`groups` must cover all tokens here. The draw of the group and of the token in it are integrated out."""
    p0 = context.p
    member = np.array([[v in group for v in range(len(p0))] for group in groups], dtype=float)
    share = member / member.sum(0)  # [G, V]: each group's part of each token
    mass0 = share @ p0
    p = mass0
    for child in children:
        own = np.flatnonzero(member[:, child.token])
        q = share @ context.q if context.sampled else share[:, child.token]
        ratio = {g: min(1.0, p[g] / q[g]) / len(own) for g in own}
        group_kept = sum(ratio.values())
        inside = {g: share[g] * p0 / mass0[g] if mass0[g] > 0 else np.zeros_like(p0) for g in own}
        if token == "keep":
            if child.u < group_kept:
                return child, p0
        else:
            if child.u < sum(ratio[g] * inside[g][child.token] for g in own):
                return child, p0
            if child.u < group_kept:  # another token was drawn
                drawn = sum(ratio[g] * inside[g] for g in own)
                drawn[child.token] = 0.0
                return None, drawn
        left = np.maximum(p - q, 0.0)
        p = left / left.sum() if left.sum() > 1e-12 else left
    weights = sum(p[g] * share[g] * p0 / mass0[g] for g in range(len(groups)) if mass0[g] > 0)
    return None, weights if weights.sum() > 0 else p0
