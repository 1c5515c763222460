"""decoding.repetition_penalty: transformers' processor, in the target and in the draft model."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from methods import registry
from methods.decode import Limits, Request, generate, verify
from methods.method import autoregressive, build_method
from methods.rules.lossless import Lossless
from methods.sampling import Sampling
from tests.helpers.tiny_models import VOCAB, language_model, noisy_copy, prompts

NEW, LENGTH = 24, 4
LIMITS = Limits(NEW, frozenset())
ROWS = prompts(3)
PENALTIES = (1.05, 1.5, 0.7)


def stock(ids: list[int], penalty: float) -> list[int]:
    """transformers' own greedy answer."""
    model = language_model("llama").model
    config = GenerationConfig(
        do_sample=False, max_new_tokens=NEW, repetition_penalty=penalty, pad_token_id=0
    )
    tokens = torch.tensor([ids])
    out = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), generation_config=config, eos_token_id=None
    )
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize("penalty", PENALTIES)
def test_logits_are_those_of_transformers(penalty: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, VOCAB, generator=generator)
    ids = torch.randint(0, VOCAB, (5, 9), generator=generator)
    own = Sampling(repetition_penalty=penalty).penalised(logits, ids)
    torch.testing.assert_close(own, RepetitionPenaltyLogitsProcessor(penalty)(ids, logits.clone()))
    assert not torch.equal(own, logits)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("drafted", [False, True], ids=["alone", "with a draft model"])
def test_greedy_answers_are_those_of_transformers(penalty: float, drafted: bool) -> None:
    """Rows of different lengths in one batch; every answer differs from that without a penalty."""
    target, sampling = language_model("llama"), Sampling(repetition_penalty=penalty)
    method = autoregressive(target, sampling)
    if drafted:
        drafter = registry.drafter("model")()
        method = build_method(target, noisy_copy(target), drafter, Lossless(), sampling, LENGTH)
    requests = [Request(row, str(place)) for place, row in enumerate(ROWS)]
    answers = [generation.output_ids for generation in generate(method, requests, LIMITS)]
    assert answers == [stock(row, penalty) for row in ROWS]
    assert answers != [stock(row, 1.0) for row in ROWS]


def test_p_and_q_know_the_path_of_each_node() -> None:
    """One draft at temperature 1: target and draft distribution behind each node, against the
    processor on the whole context."""
    sampling = Sampling(1.0, repetition_penalty=1.4)
    target = language_model("llama")
    drafter = registry.drafter("model")()
    method = build_method(target, noisy_copy(target), drafter, Lossless(), sampling, LENGTH)
    rows = [list(row) for row in ROWS]
    slots = max(map(len, rows)) + LENGTH + 2
    with torch.inference_mode():
        proposer = method.proposer(rows, slots)
        cache = target.new_cache(len(rows), slots)
        target.prefill(rows, cache)
        for row in rows:
            row.append(7)
        draft = proposer.propose(rows, torch.full((len(rows), LENGTH), 0.4))
        u = torch.full((len(rows), LENGTH + 1), 0.5)
        v = verify(method, draft, cache, u, rows=rows)[0]
        processor = RepetitionPenaltyLogitsProcessor(1.4)
        for place, row in enumerate(rows):
            for node in range(LENGTH + 1):
                context = [*row, *draft.tokens[place, 1 : node + 1].tolist()]
                for model, found in ((target, v.p), (method.model, v.q)):
                    ids = torch.tensor([context])
                    if node == LENGTH and model is not target:
                        continue
                    plain = model.prefill([context], model.new_cache(1, len(context) + 1)).logits
                    wanted = processor(ids, plain[:, 0].clone()).softmax(-1)
                    torch.testing.assert_close(found[place, node], wanted[0], atol=1e-5, rtol=1e-4)
