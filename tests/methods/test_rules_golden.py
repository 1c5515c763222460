"""Rules against outcomes recorded from the public implementations of EAGLE, MARS and FSD."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
import torch

from methods.rules.base import Rule
from methods.rules.fsd import Fsd, divergence, smooth
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import first_token, outcomes

SYNTHETIC = "acceptance/synthetic_cases.json.gz"
REAL = "acceptance/real_trees_llama_16_3_4"


def verification(cases: list[dict], logits: list[np.ndarray], sampling: Sampling) -> Verification:
    """Trees of different sizes as the rows of one batch, the smaller ones padded with invalid nodes under the root."""
    rows, nodes, vocab = len(cases), max(len(case["parents"]) for case in cases), np.shape(logits[0])[-1]
    tokens, parents = torch.zeros(rows, nodes, dtype=torch.long), torch.zeros(rows, nodes, dtype=torch.long)
    q, z = torch.ones(rows, nodes), torch.full((rows, nodes, vocab), torch.nan)
    for row, case in enumerate(cases):
        n = len(case["parents"])
        tokens[row, :n], parents[row, :n] = torch.tensor(case["draft_tokens"]), torch.tensor(case["parents"])
        q[row, :n], z[row, :n] = torch.tensor(case["node_q"]), torch.as_tensor(logits[row], dtype=torch.float32)
    valid = ~z.isnan().any(-1)
    draft = Draft.of_parents(tokens, parents, valid=valid, q=q)
    return Verification(draft, z, sampling, torch.zeros(rows, nodes))


@pytest.fixture(scope="module")
def synthetic(golden_json) -> list[tuple[list[dict], Verification]]:
    """The synthetic cases, those of one vocabulary and one processor together."""
    groups = defaultdict(list)
    for case in golden_json(SYNTHETIC)["cases"]:
        groups[case["vocab"], *case["processor"].values()].append(case)
    batches = []
    for cases in groups.values():
        processor = cases[0]["processor"]
        sampling = Sampling(processor["temperature"], processor["top_k"], processor["top_p"] or 1.0)
        batches.append((cases, verification(cases, [case["node_logits"] for case in cases], sampling)))
    return batches


def rule_of(result: dict) -> Rule:
    """EAGLE takes candidates as point masses; MARS takes the draft's probabilities where it is handed them."""
    if result["function"] == "eagle":
        return Lossless()
    return Mars(variant="released", theta=result["threshold"], q_mode="draft" if result["retrieve_probs"] else "exact")


def assert_same_outcomes(results: list[dict], v: Verification) -> torch.Tensor:
    """One recorded result per row, all of one rule. Returns the distribution [B, V] of the first emitted token."""
    rule = rule_of(results[0])
    found = outcomes(rule, v)
    for row, result in enumerate(results):
        expected: dict[tuple[int, ...], float] = defaultdict(float)
        for outcome in result["exact_outcomes"]:
            expected[tuple(outcome["accepted_nodes"])] += outcome["prob"]
        for path in expected.keys() | found[row].keys():
            where = f"{rule!r} row {row} path {path}"
            assert found[row].get(path, 0.0) == pytest.approx(expected.get(path, 0.0), abs=1e-6), where
    for outcome in itertools.zip_longest(*(result["exact_outcomes"] for result in results)):
        last = torch.tensor([o["accepted_nodes"][-1] if o else 0 for o in outcome])
        weights, p = rule.emit(v, last).double(), v.p_at(last).double()
        emitted = weights / weights.sum(-1, keepdim=True)
        for row, o in enumerate(outcome):
            if o and (o["sample_p_is_target"] or "sample_p" in o):
                expected_p = p[row] if o["sample_p_is_target"] else torch.tensor(o["sample_p"]).double()
                torch.testing.assert_close(emitted[row], expected_p, atol=2e-6, rtol=2e-5)
    return first_token(rule, v, found)


def test_synthetic_trees(synthetic) -> None:
    for cases, v in synthetic:
        for results in zip(*(case["results"] for case in cases), strict=True):
            first = assert_same_outcomes(results, v)
            marginal = torch.tensor([result["exact_first_token_marginal"] for result in results]).double()
            torch.testing.assert_close(first, marginal, atol=2e-6, rtol=1e-5)


def test_synthetic_greedy(synthetic) -> None:
    for cases, v in synthetic:
        cold = Verification(v.draft, v.logits, Sampling(0.0), v.u)
        for rule in (Greedy(), Lossless(), Mars(variant="released", theta=0.84)):
            kept = walk(cold, rule.decide(cold))
            token = rule.next_token(cold, kept.last, v.u[:, 0])
            for row, case in enumerate(cases):
                assert kept.kept[row].nonzero().flatten().tolist() == case["greedy"]["accepted_nodes"]
                assert int(token[row]) == case["greedy"]["next_token"]


def test_real_trees(golden, golden_json) -> None:
    cases, logits = golden_json(f"{REAL}.json.gz")["cases"], np.load(golden(f"{REAL}_logits.npz"))
    v = verification(cases, [logits[f"node_logits_{i}"] for i in range(len(cases))], Sampling(1.0))
    for results in zip(*(case["results"] for case in cases), strict=True):
        bias = (assert_same_outcomes(results, v) - v.p[:, 0].double()).abs().sum(-1) / 2
        np.testing.assert_allclose(bias, [result["tv_first_token_vs_target"] for result in results], atol=2e-6)


FSD_TYPES = {"js_div": "js_released", "kl_div": "kl_released", "kl_div_reversed": "kl", "tv_div": "tv",
             "top_k_js_div": "topk_js_released", "top_k_kl_div": "topk_kl_released", "top_k_tv_div": "topk_tv"}


def assert_same_numbers(found: torch.Tensor, recorded: list[float | str], where: str) -> None:
    """Both sides are float32, so 1e-6 means absolute below 1 and relative above."""
    np.testing.assert_allclose(found.double().numpy(), [float(x) for x in recorded], 1e-6, 1e-6, err_msg=where)


@pytest.mark.parametrize("recorded,kind", FSD_TYPES.items())
def test_fsd_divergences(golden_json, recorded: str, kind: str) -> None:
    data = golden_json("fsd/fsd_cases.json.gz")
    processing = Sampling(data["processed_config"]["temperature"], data["processed_config"]["top_k"])
    for case in data["cases"]:
        where = f"case {case['id']} ({case['kind']}) {recorded}"
        z, draft_z = torch.tensor(case["target_logits"])[:-1], torch.tensor(case["draft_logits"])
        p, q = z.softmax(-1), draft_z.softmax(-1)
        assert_same_numbers(divergence(kind, p, q), case["div"][recorded], where)
        assert_same_numbers(divergence(kind, smooth(p), smooth(q)), case["div_eps"][recorded], f"{where} smoothed")
        if f"{recorded}_processed" in case["div"] and kind != "kl":  # the code processes nothing for the reversed one
            p, q = smooth(processing.probs(z)), smooth(processing.probs(draft_z))
            assert_same_numbers(divergence(kind, p, q), case["div"][f"{recorded}_processed"], f"{where} processed")


FSD_RULES = ([(name, kind, False) for name, kind in FSD_TYPES.items()]
             + [(f"{name}_processed", FSD_TYPES[name], True) for name in ("js_div", "kl_div", "tv_div")])


@pytest.mark.parametrize("recorded,kind,processed", FSD_RULES)
def test_fsd_decisions(golden_json, recorded: str, kind: str, processed: bool) -> None:
    data = golden_json("fsd/fsd_cases.json.gz")
    sampling = Sampling(data["processed_config"]["temperature"], data["processed_config"]["top_k"])
    accepted = 0
    for case in data["cases"]:
        z, draft_z = torch.tensor([case["target_logits"]]), torch.tensor([case["draft_logits"]])
        unread = torch.full_like(draft_z[:, :1], torch.nan)  # the last context was not drafted from
        draft = Draft.of_chain(torch.tensor([[0, *case["candidate_tokens"]]]), logits=torch.cat([draft_z, unread], 1),
                               q=torch.ones(1, z.shape[1]))
        v = Verification(draft, z, sampling, torch.zeros(draft.tokens.shape))
        for threshold, mask in case["accept"][recorded].items():
            decision = Fsd(divergence=kind, threshold=float(threshold), processed=processed).decide(v)
            assert decision.accept[0, 1:].tolist() == mask, f"case {case['id']} {recorded} {threshold}"
            assert int(walk(v, decision).length) == case["n_matches"][recorded][threshold]
            accepted += sum(mask)
    assert accepted > 0
