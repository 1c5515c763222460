"""What a drafter says about its drafts before a run is what its drafts are."""

from __future__ import annotations

import pytest
import torch

from methods import registry
from methods.drafters.base import DraftSettings
from methods.sampling import Sampling
from tests.helpers.tiny_heads import random_head
from tests.helpers.tiny_models import language_model


def test_a_chain_of_a_head_is_a_chain() -> None:
    target = language_model(layers=3)
    drafter = registry.drafter("eagle2")(tree="chain")
    head = random_head("eagle2", target)
    proposer = drafter.start(target, head, DraftSettings(3, Sampling(0.0), True), [[1, 2]], 32)
    out = target.prefill([[1, 2]], target.new_cache(1, 32), features=drafter.features(head))
    proposer.on_logits(out.logits, torch.zeros(1, dtype=torch.long))
    proposer.on_features(out.features, [range(2)])
    draft = proposer.propose([[1, 2, 3]], torch.zeros(1, 0))
    assert drafter.chain and draft.chain and draft.parents.tolist() == [[-1, 0, 1, 2]]


@pytest.mark.parametrize("name", ["model", "early_exit"])
def test_the_distribution_behind_the_last_token(name: str) -> None:
    """is that of one forward over everything committed and drafted; without `bonus_q` it is not computed."""
    target = language_model(layers=3)
    model = language_model(layers=1) if name == "model" else None
    reader = model or target.first_layers(2)
    rows = [[1, 2, 3, 4], [3, 1, 2, 5]]
    for bonus_q in (True, False):
        drafter = registry.drafter(name)()
        proposer = drafter.start(target, model, DraftSettings(3, Sampling(1.0), True, bonus_q=bonus_q), rows, 32)
        cache = target.new_cache(2, 32)
        target.prefill([row[:-1] for row in rows], cache)
        proposer.attach_target_cache(cache)
        draft = proposer.propose(rows, torch.tensor([[0.1, 0.5, 0.9], [0.3, 0.2, 0.7]]))
        for row, tokens, logits in zip(rows, draft.tokens.tolist(), draft.logits, strict=True):
            ids = torch.tensor([row + tokens[1:]])
            whole = reader.forward(ids, reader.new_cache(1, 32)).logits[0]
            torch.testing.assert_close(logits[:3], whole[3:6], atol=1e-4, rtol=1e-4)
            assert torch.allclose(logits[3], whole[6], atol=1e-4) == bonus_q
