"""Our Muon against torch's own, which orthogonalises in bfloat16, and against what orthogonalisation means."""

from __future__ import annotations

import torch

from methods.training.muon import Muon, orthogonalise


def test_orthogonalising_keeps_the_singular_vectors_and_levels_the_values():
    torch.manual_seed(0)
    for shape in ((24, 24), (40, 16), (16, 40)):
        matrix = torch.randn(2, *shape, dtype=torch.float64)
        result = orthogonalise(matrix, 5)
        u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
        inner = u.mT @ result @ vh.mT
        values = inner.diagonal(dim1=-2, dim2=-1)
        assert (inner - torch.diag_embed(values)).abs().max() < 1e-9
        assert values.min() > 0.3 and values.max() < 1.4


def test_steps_agree_with_torch():
    torch.manual_seed(1)
    start = [torch.randn(24, 16), torch.randn(24, 16), torch.randn(8, 16)]
    ours, theirs = ([torch.nn.Parameter(p.clone()) for p in start] for _ in range(2))
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "ns_steps": 5}
    optimisers = Muon(ours, **settings), torch.optim.Muon(theirs, nesterov=True, **settings)
    for _ in range(4):
        for params, optimiser in zip((ours, theirs), optimisers, strict=True):
            for i, p in enumerate(params):
                p.grad = torch.sin(p.detach() * (i + 2))
            optimiser.step()
    for a, b, p in zip(ours, theirs, start, strict=True):
        assert (b - p).abs().max() > 0.02  # they moved
        assert torch.allclose(a, b, atol=0.02)  # bfloat16 there
