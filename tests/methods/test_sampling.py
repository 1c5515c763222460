"""Filters of a distribution over a large vocabulary, and decoding.repetition_penalty, which is
transformers' processor, in the target and in the draft model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from methods.decode import Limits, Request, generate
from methods.sampling import HEAD, Sampling
from tests.helpers.tiny_heads import inner_nodes, method_of, requests
from tests.helpers.tiny_models import greedy_answers, language_model, prompts

VOCABULARY = 2 * HEAD + 500


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.3, 0.8, 0.95, 0.999]),
    st.sampled_from([0, 20]),
    st.floats(0.01, 20),
)
def test_kept_tokens_are_those_of_a_full_sort(
    seed: int, top_p: float, top_k: int, spread: float
) -> None:
    """The smallest set of the most likely tokens with a mass of at least top_p, in float64. From
    distributions on a few tokens to ones that reach beyond the ordered head."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, VOCABULARY, generator=random) * spread
    kept = Sampling(1.0, top_k, top_p).process(logits).isfinite()
    for row, own in zip(logits.flatten(0, 1), kept.flatten(0, 1), strict=True):
        best, order = row.double().sort(descending=True)
        p = best[: top_k or VOCABULARY].softmax(-1)
        wanted = order[: len(p)][p.cumsum(0) - p < top_p]
        differing = {*wanted.tolist()} ^ {*own.nonzero()[:, 0].tolist()}
        mass = float(row.double().softmax(-1)[list(differing)].sum())
        assert len(differing) <= 2 and mass < 1e-3, (
            "but for a token on the very edge, where rounding decides"
        )


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


NEW, ROWS = 24, tuple(map(tuple, prompts(3)))


@pytest.mark.parametrize("penalty", (1.05, 1.5, 0.7))
@pytest.mark.parametrize("drafter", ["none", "model"])
def test_greedy_answers_are_those_of_transformers(penalty: float, drafter: str) -> None:
    """Rows of different lengths in one batch; every answer differs from that without a penalty."""
    sampling = Sampling(repetition_penalty=penalty)
    method = method_of(drafter, sampling=sampling, target=language_model("llama"))
    asked = [Request(list(row), str(place)) for place, row in enumerate(ROWS)]
    limits = Limits(NEW, frozenset())
    answers = [generation.output_ids for generation in generate(method, asked, limits)]
    stock, plain = (greedy_answers("llama", 2, NEW, ROWS, each) for each in (penalty, 1.0))
    assert answers == stock != plain


def test_the_draft_knows_the_path_of_each_node(watched) -> None:
    """Its logits behind each node, against the processor on the whole context."""
    sampling = Sampling(1.0, repetition_penalty=1.4)
    method = method_of("model", sampling=sampling, target=language_model("llama"))
    log = watched(type(method.proposer([[1]], 64)))
    generate(method, requests(3), Limits(NEW, frozenset()))
    processor, model = RepetitionPenaltyLogitsProcessor(1.4), method.model
    for rows, draft, _ in log[:2]:
        for place, row in enumerate(rows):
            for path, logits in inner_nodes(draft, place):
                context = [*row, *path]
                plain = model.prefill([context], model.new_cache(1, len(context) + 1)).logits
                wanted = processor(torch.tensor([context]), plain[:, 0].clone())[0]
                torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
