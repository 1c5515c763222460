"""Medusa heads that really predict an untrained target: fitted in closed form to its own greedy answers."""

from __future__ import annotations

import torch

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.language_model import LanguageModel
from methods.heads.medusa import Medusa, MedusaHeads
from methods.method import build_method
from methods.sampling import Sampling


def fitted_medusa(target: LanguageModel, rows: list[list[int]], *, new: int, heads: int = 4) -> Medusa:
    """Ridge regression from the final-norm state at t to the token at t+2+i, over the answers to `rows`. The residual
    blocks are the identity. Heads that were given a state one place off would predict hardly anything."""
    method = build_method(target, None, registry.drafter("none")(), registry.rule("greedy")(), Sampling(0.0), 1)
    states, later = [], [[] for _ in range(heads)]
    for row in rows:
        ids = row + generate(method, [Request(row, "fit")], Limits(new + heads, frozenset()))[0].output_ids
        with torch.inference_mode():
            hidden = target.model(torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states[-1][0]
        span = range(len(row) - 1, len(ids) - 1 - heads)
        states += [hidden[t] for t in span]
        for i in range(heads):
            later[i] += [ids[t + 2 + i] for t in span]
    x = torch.stack(states).double()
    fit = MedusaHeads(heads, x.shape[1], target.vocab_size).start_from(torch.zeros(target.vocab_size, x.shape[1]))
    gram = x.T @ x + 1e-2 * torch.eye(x.shape[1], dtype=torch.float64)
    with torch.no_grad():
        for head, tokens in zip(fit, later, strict=True):
            y = torch.nn.functional.one_hot(torch.tensor(tokens), target.vocab_size).double()
            head[-1].weight.copy_(8.0 * torch.linalg.solve(gram, x.T @ y).T)
    return Medusa("fitted", fit.eval().requires_grad_(False), "test")
