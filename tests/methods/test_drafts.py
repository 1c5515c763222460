"""Every node of a draft carries the distribution that its tokens were drawn from: that of its path,
read whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from methods import registry
from methods.decode import Limits, generate
from methods.method import Method
from methods.sampling import Sampling
from tests.helpers.tiny_heads import OPTIONS, inner_nodes, method_of, requests
from tests.helpers.tiny_models import language_model

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("model", "llama", {}),
    ("model", "llama", {"sample": False}),
    ("model", "llama", {"branching": [2, 2]}),
    ("early_exit", "llama", {"exit_layer": 1}),
    ("early_exit", "qwen3", {"exit_layer": 2}),
    ("early_exit", "gemma2", {"exit_layer": 2}),
    ("eagle", "llama", OPTIONS["eagle"]),
    ("eagle2", "llama", OPTIONS["eagle2"]),
]
"""EAGLE-3's heads: test_eagle3_config.py; Medusa's: test_heads.py."""
PROMPTS, NEW = 3, 16


@torch.inference_mode()
def read_whole(method: Method, name: str, ids: list[int], path: list[int]) -> Tensor:
    """[V] logits behind committed `ids` and a drafted `path`, in one piece without cache, mask or
    tree. A head is fed true features up to the root, and its own output from there on."""
    target, head = method.target, method.model
    tokens = torch.tensor([ids + path])
    if name == "model":
        return head.model(tokens).logits[0, -1]
    if name == "early_exit":
        states = target.model(tokens, use_cache=False, output_hidden_states=True).hidden_states
        state = states[method.drafter.exit_layer][0, -1]
        return target.head(target.model.base_model.norm(state))
    committed = torch.tensor([ids[:-1]])
    states = target.model(committed, output_hidden_states=True, use_cache=False).hidden_states
    features = [states[index] for index in method.drafter.features(head)]
    hidden, seen = head.model.fuse(torch.cat(features, -1)), ids[1:]
    for token in path:
        out = head.model(head.embed(torch.tensor([seen])), hidden)
        seen, hidden = [*seen, token], torch.cat([hidden, out[:, -1:]], 1)
    out = head.model(head.embed(torch.tensor([seen])), hidden)
    return head.over_target(head.logits(out[:, -1:]))[0, 0]


@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=str)
def test_a_node_says_what_its_path_says(
    name: str, kind: str, options: dict[str, Any], watched
) -> None:
    """In a ragged batch over several cycles. q is that of a token in the distribution of its
    parent."""
    target, sampling = language_model(kind, layers=3), Sampling(0.5)
    rule = registry.rule("lossless")(q_mode="draft")
    method = method_of(name, rule, sampling, target=target, **options)
    log, asked = watched(type(method.proposer([[1, 2]], 64))), requests(PROMPTS)
    generate(method, asked, Limits(NEW, frozenset()))
    assert len(log) > 2 and len({len(row) for row in log[-1][0]}) > 1
    for rows, draft, _ in log[:4]:
        for row, ids in enumerate(rows):
            if len(ids) - len(asked[row].input_ids) >= NEW:
                continue  # this row is finished: its draft is nobody's
            for path, logits in inner_nodes(draft, row):
                expected = read_whole(method, name, ids, path)
                # without a norm between the steps of a head rounding grows with depth; a wrong
                # token, place or mask is larger
                largest = float(expected.abs().max())
                torch.testing.assert_close(logits, expected, rtol=0, atol=2e-3 * largest)
        parents = draft.parents.expand(draft.tokens.shape)[:, 1:]
        q = sampling.probs(draft.logits) if draft.sampled else draft.logits.softmax(-1)
        of_parent = q.gather(1, parents[..., None].expand(-1, -1, q.shape[-1]))
        own = of_parent.gather(2, draft.tokens[:, 1:, None])[..., 0]
        torch.testing.assert_close(draft.q[:, 1:], own)


@pytest.mark.parametrize("rule", ["lossless", "contrastive"])
@pytest.mark.parametrize("name", ["model", "early_exit"])
def test_the_last_node_says_it_only_where_a_rule_reads_it(name: str, rule: str, watched) -> None:
    method = method_of(name, rule)
    log = watched(type(method.proposer([[1, 2]], 64)))
    generate(method, requests(1), Limits(NEW, frozenset()))
    [ids], draft, _ = log[0]
    expected = read_whole(method, name, ids, draft.tokens[0, 1:].tolist())
    assert torch.allclose(draft.logits[0, -1], expected, atol=1e-3) == (rule == "contrastive")
