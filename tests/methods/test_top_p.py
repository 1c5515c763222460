"""Top-p over a large vocabulary, where only the most likely tokens are put in order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.sampling import HEAD, Sampling

VOCABULARY = 2 * HEAD + 500


def kept_by_sort(logits: torch.Tensor, top_p: float) -> list[int]:
    """The smallest set of the most likely tokens with a mass of at least top_p, in float64."""
    p = logits.double().softmax(-1)
    order = p.argsort(descending=True)
    before = p[order].cumsum(0) - p[order]
    return sorted(order[before < top_p].tolist())


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.8, 0.95, 0.999]), st.floats(0.05, 12))
def test_kept_tokens_are_those_of_a_full_sort(seed: int, top_p: float, spread: float) -> None:
    """From distributions on a few tokens to ones that reach beyond the ordered head."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, VOCABULARY, generator=random) * spread
    kept = Sampling(1.0, top_p=top_p).process(logits).isfinite()
    for row, own in zip(logits.flatten(0, 1), kept.flatten(0, 1), strict=True):
        wanted, found = kept_by_sort(row, top_p), own.nonzero()[:, 0].tolist()
        differing = set(wanted) ^ set(found)
        mass = float(row.double().softmax(-1)[list(differing)].sum()) if differing else 0.0
        assert len(differing) <= 2 and mass < 1e-3, (
            "but for a token on the very edge, where rounding decides"
        )


@pytest.mark.parametrize("spread", [0.01, 20.0])
def test_a_head_and_a_full_sort_keep_the_same(
    monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    logits = torch.randn(40, VOCABULARY, generator=torch.Generator().manual_seed(0)) * spread
    by_head = Sampling(0.6, top_p=0.95, top_k=20).process(logits)
    monkeypatch.setattr("methods.sampling.HEAD", VOCABULARY)
    assert torch.equal(by_head, Sampling(0.6, top_p=0.95, top_k=20).process(logits))


@pytest.mark.parametrize("min_p", [0.02, 0.1, 0.5])
def test_min_p_is_that_of_transformers(min_p: float) -> None:
    from transformers.generation.logits_process import MinPLogitsWarper, TopPLogitsWarper

    logits = 2 * torch.randn(40, 50, generator=torch.Generator().manual_seed(1))
    ids = torch.zeros(40, 1, dtype=torch.long)
    stock = MinPLogitsWarper(min_p)(ids, TopPLogitsWarper(0.9)(ids, logits / 0.7))
    own = Sampling(0.7, top_p=0.9, min_p=min_p).process(logits)
    assert torch.equal(own.isfinite(), stock.isfinite()) and not torch.equal(
        own.isfinite(), logits.isfinite()
    )
    assert torch.equal(own[own.isfinite()], stock[stock.isfinite()])
