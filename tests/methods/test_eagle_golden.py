"""EAGLE drafters against runs recorded from the authors' code: every tree, every accept length, every token."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.method import build_method
from methods.sampling import Sampling

SHARED = Path(os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared"))
RECORDED = sorted(file.name.removesuffix(".json.gz") for file in SHARED.glob("golden/eagle/*.json.gz"))
HEADS = {"eagle3": "eagle3", "eagle2": "eagle2", "eagle1": "eagle2", "eagle": "eagle2", "hass": "hass"}


@pytest.fixture(scope="module", params=RECORDED or [pytest.param("", marks=pytest.mark.skip(
    f"no reference data under {SHARED}/golden/eagle: set LEEWAY_SHARED to the folder that has golden/"))])
def case(request, golden, golden_json):
    """(recorded run, method): the files are named target_head_total_depth_topk."""
    target_name, head_name, total, depth, top_k = request.param.split("_")
    drafter = registry.drafter(HEADS[head_name])
    target = load_model(str(golden(f"models/target_{target_name}")))
    folder = next(golden(f"models/{name}_{target_name}") for name in (head_name, "eagle2", "eagle", "eagle1", "hass")
                  if (SHARED / f"golden/models/{name}_{target_name}").exists())
    head = drafter.load(str(folder), target, revision=None, dtype="float32", device="cpu")
    options = drafter(total=int(total), depth=int(depth), top_k=int(top_k))
    method = build_method(target, head, options, registry.rule("greedy")(), Sampling(0.0), 1)
    return request.param, golden_json(f"eagle/{request.param}.json.gz"), method


def test_every_cycle(case, drafts) -> None:
    _, recorded, method = case
    for prompt in recorded["prompts"]:
        drafts.clear()
        ids = prompt["input_ids"]
        expected = [*prompt["output_ids"][len(ids):], prompt["cycles"][-1]["next_token"]]
        [found] = generate(method, [Request(ids, "golden")], Limits(len(expected), frozenset()))
        assert found.output_ids[0] == prompt["first_token"]
        for (_, draft), accepted, cycle in zip(drafts, found.accepted, prompt["cycles"], strict=True):
            where = f"prompt {prompt['prompt_index']} at {cycle['input_len']}"
            assert draft.tokens[0].tolist() == cycle["draft_tokens"], where
            assert draft.parents[0].tolist() == cycle["parents"], where
            assert draft.depth[0].tolist() == cycle["tree_position_ids"], where
            assert accepted == cycle["accept_length"], where
        assert found.output_ids == expected


def test_node_probabilities(case, drafts) -> None:
    """q is a node's probability given its parent; its logarithm summed along the path is the recorded score."""
    _, recorded, method = case
    prompt = recorded["prompts"][0]
    generate(method, [Request(prompt["input_ids"], "golden")], Limits(9, frozenset()))
    for (_, draft), cycle in zip(drafts, prompt["cycles"], strict=False):
        score = (draft.ancestors[0].double() @ draft.q[0].double().log())[1:]
        np.testing.assert_allclose(score, cycle["node_logprob"], atol=2e-4)


def test_trees_of_the_acceptance_cases(golden, golden_json) -> None:
    """The recorded acceptance distributions at T = 1 belong to trees that this drafter makes of the same contexts."""
    name = "llama_16_3_4"
    target = load_model(str(golden("models/target_llama")))
    drafter = registry.drafter("eagle3")(total=16, depth=3, top_k=4)
    head = drafter.load(str(golden("models/eagle3_llama")), target, revision=None, dtype="float32", device="cpu")
    rule = registry.rule("lossless")(q_mode="draft")
    method = build_method(target, head, drafter, rule, Sampling(1.0), 1)
    for case in golden_json(f"acceptance/real_trees_{name}.json.gz")["cases"]:
        rows = [list(case["context_ids"])]
        with torch.inference_mode():
            out = target.prefill(rows, target.new_cache(1, 400), features=drafter.features(head))
            proposer = drafter.start(target, head, method.draft, rows, 400)
            proposer.on_features(out.features, [range(len(rows[0]))])
            draft = proposer.propose([rows[0] + case["draft_tokens"][:1]], torch.empty(1, 0))
        assert draft.tokens[0].tolist() == case["draft_tokens"] and draft.parents[0].tolist() == case["parents"]
        np.testing.assert_allclose(draft.q[0], case["node_q"], atol=2e-5)
        for node in range(1, draft.nodes):  # the whole distribution says the same as the nodes' own probabilities
            own = draft.logits[0, draft.parents[0, node]].softmax(-1)[draft.tokens[0, node]]
            assert float(own) == pytest.approx(float(draft.q[0, node]), abs=1e-6)
