"""Writing down a cycle changes nothing of it, and says of every node what the rule and the walk made of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.cycle import most_telling, record
from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from results.store.traces import KEPT
from tests.helpers.tiny_heads import fitted_medusa
from tests.helpers.tiny_models import language_model, prompts

NEW = 24


class Spelling:
    """Stands where a tokenizer would: a token's text is its number."""

    eos_token_id = None
    chat_template = None

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(map(str, ids))


@pytest.fixture(scope="module")
def models():
    target = language_model("llama", layers=3, seed=4)
    target.tokenizer = Spelling()
    return target, fitted_medusa(target, prompts(3), new=NEW)


@pytest.mark.parametrize("rule", ["lossless", "typical", "mars"])
def test_every_node_is_accounted_for(models, rule):
    drafter = registry.drafter("medusa")(tree="small_10")
    method = build_method(*models, drafter, registry.rule(rule)(), Sampling(1.0), 4)
    prompt = prompts(3)[1]
    request, limits = Request(prompt, "0/test"), Limits(NEW, frozenset())
    plain = generate(method, [request], limits)[0]
    cycles = record(method, request, limits, {})
    assert len(cycles) == len(plain.committed) > 1
    ids = [*prompt, plain.output_ids[0]]
    for number, (cycle, accepted) in enumerate(zip(cycles, plain.accepted, strict=True), start=1):
        assert cycle.number == number and cycle.nodes[0].token == ids[-1] and len(cycle.nodes) == 11
        kept = [i for i, node in enumerate(cycle.nodes) if node.clause in ("root", *KEPT)]
        assert all(cycle.nodes[i].parent == above for above, i in pairwise(kept))
        assert cycle.follow.parent == kept[-1] and cycle.follow.clause == "drawn"
        assert cycle.accepted >= accepted  # the length limit may cut the last cycle
        for i, node in enumerate(cycle.nodes[1:], start=1):
            before = [j for j in range(1, i) if cycle.nodes[j].parent == node.parent]
            tested = node.parent in kept and not any(j in kept for j in before)
            assert (node.clause == "unreached") == (i not in kept and not tested)
            assert 0 <= node.target <= 1 and node.rank >= 0
            assert node.clause not in ("relaxed", "argmax") or rule != "lossless"
            assert node.clause != "argmax" or node.rank == 0
            assert node.clause != "relaxed" or node.rank > 0
        ids += [cycle.nodes[i].token for i in kept[1:]] + [cycle.follow.token]
    assert ids[len(prompt):][:NEW] == plain.output_ids
    assert sum(cycle.relaxed for cycle in cycles) >= plain.relaxed
    telling = most_telling(cycles)
    assert telling.relaxed == max(cycle.relaxed for cycle in cycles)
