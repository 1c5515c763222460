"""Drafters that propose trees, for testing the loop: branching, siblings, paths that are not their
tree's first."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import partial

import torch

from methods.drafters.base import Drafter, Proposer
from methods.trees.draft import Draft

PARENTS = [-1, 0, 0, 0, 1, 1, 2, 3, 4, 6, 6, 7, 9]
DEPTH = [0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]


class TreeDrafter(Drafter):
    """A fixed shape of 13 nodes; `choose(row, depth, rank)` names the token of a node, siblings
    being distinct."""

    choose: Callable[[list[int], int, int], int]

    def nodes(self, length: int) -> int:
        return len(PARENTS)

    def start(self, target, model, settings, rows, slots) -> Proposer:
        return _Tree(self.choose, target.device)


class _Tree(Proposer):
    def __init__(self, choose, device):
        self.choose, self.device = choose, device

    def propose(self, rows, u):
        ranks = [PARENTS[:i].count(PARENTS[i]) + 3 * PARENTS[i] for i in range(1, len(PARENTS))]
        tokens = [[row[-1], *map(partial(self.choose, row), DEPTH[1:], ranks)] for row in rows]
        parents = torch.tensor(PARENTS, device=self.device).expand(len(rows), -1)
        return Draft.of_parents(torch.tensor(tokens, device=self.device), parents)


def hashed(vocab: int) -> Callable[[list[int], int, int], int]:
    """Tokens that depend on the context alone; siblings (equal rank // 3) follow each other, so
    they are distinct."""

    def choose(row, depth, rank):
        digest = hashlib.blake2b(bytes(row) + bytes([depth, rank // 3]), digest_size=4).digest()
        return (int.from_bytes(digest) + rank % 3) % vocab

    return choose


def planted(
    answers: dict[tuple[int, ...], list[int]], vocab: int, seed: int
) -> Callable[[list[int], int, int], int]:
    """Mostly the true continuation, at a random rank among its siblings; `answers` maps a prompt to
    it."""

    def choose(row, depth, rank):
        prompt = next(p for p in answers if tuple(row[: len(p)]) == p)
        at = len(row) - len(prompt) + depth - 1
        truth = answers[prompt][at] if at < len(answers[prompt]) else 0
        rng = random.Random(f"{seed}/{row}/{depth}/{rank // 3}")
        return (truth + rank % 3 - rng.choice([0, 0, 1, 2, 3])) % vocab

    return choose
