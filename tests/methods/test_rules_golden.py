"""Rules against outcomes recorded while their authors' code ran. What is a float64 reference there
too is compared with that of tests/helpers instead (test_rules_laws.py)."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from methods import registry
from methods.distributions import divergence
from methods.rules.base import Rule
from methods.rules.fsd import Fsd, smooth
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import acceptance, ends, first_token, one_token_each

SHARED = os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared")
GOLDEN = Path(SHARED) / "golden"
pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(),
    reason=f"no reference data at {GOLDEN}: set LEEWAY_SHARED to the folder that has golden/",
)


def golden(name: str) -> dict[str, Any]:
    """A file of the reference data."""
    data = (GOLDEN / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def verification(cases: list[dict]) -> Verification:
    """Trees of different sizes as the rows of one batch, the smaller ones padded with invalid nodes
    under the root."""
    rows, nodes = len(cases), max(len(case["parents"]) for case in cases)
    tokens, parents = torch.zeros(2, rows, nodes, dtype=torch.long)
    q, z = torch.ones(rows, nodes), torch.full((rows, nodes, cases[0]["vocab"]), torch.nan)
    for row, case in enumerate(cases):
        n = len(case["parents"])
        tokens[row, :n], parents[row, :n] = torch.tensor([case["draft_tokens"], case["parents"]])
        q[row, :n] = torch.tensor(case["node_q"])
        z[row, :n] = torch.tensor(case["node_logits"])
    draft = Draft.of_parents(tokens, parents, valid=~z.isnan().any(-1), q=q)
    processor = cases[0]["processor"]
    sampling = Sampling(processor["temperature"], processor["top_k"], processor["top_p"] or 1.0)
    return Verification(draft, z, sampling, torch.zeros(rows, nodes))


def rule_of(result: dict) -> Rule:
    """EAGLE takes candidates as point masses; MARS takes the draft's probabilities where it is
    handed them."""
    if result["function"] == "eagle":
        return Lossless()
    q_mode = "draft" if result["retrieve_probs"] else "exact"
    return Mars(variant="released", theta=result["threshold"], q_mode=q_mode)


def test_synthetic_trees() -> None:
    """One recorded result per row, all of one rule: the probability of each path, what is emitted
    behind it, and the first emitted token."""
    groups = defaultdict(list)
    for case in golden("acceptance/synthetic_cases.json.gz")["cases"]:
        groups[case["vocab"], *case["processor"].values()].append(case)
    for cases in groups.values():
        v = verification(cases)
        for results in zip(*(case["results"] for case in cases), strict=True):
            rule = rule_of(results[0])
            expected = torch.zeros(v.u.shape, dtype=torch.float64)
            for row, result in enumerate(results):
                for outcome in result["exact_outcomes"]:
                    expected[row, outcome["accepted_nodes"][-1]] += outcome["prob"]
            torch.testing.assert_close(ends(rule, v), expected, atol=1e-6, rtol=0.0, msg=repr(rule))
            for outcome in itertools.zip_longest(*(result["exact_outcomes"] for result in results)):
                last = torch.tensor([o["accepted_nodes"][-1] if o else 0 for o in outcome])
                weights, p = rule.emit(v, last).double(), v.p_at(last).double()
                emitted = weights / weights.sum(-1, keepdim=True)
                for row, o in enumerate(outcome):
                    if o and (o["sample_p_is_target"] or "sample_p" in o):
                        own = None if o["sample_p_is_target"] else torch.tensor(o["sample_p"])
                        want = p[row] if own is None else own.double()
                        torch.testing.assert_close(emitted[row], want, atol=2e-6, rtol=2e-5)
            marginal = [result["exact_first_token_marginal"] for result in results]
            torch.testing.assert_close(
                first_token(rule, v), torch.tensor(marginal).double(), atol=2e-6, rtol=1e-5
            )


def assert_close(
    found: Any, recorded: Any, where: str, rtol: float = 1e-7, atol: float = 1e-5
) -> None:
    np.testing.assert_allclose(found, np.asarray(recorded, float), rtol, atol, err_msg=where)


FSD_TYPES = {
    "js_div": "js_released",
    "kl_div": "kl_released",
    "kl_div_reversed": "kl",
    "tv_div": "tv",
    "top_k_js_div": "topk_js_released",
    "top_k_kl_div": "topk_kl_released",
    "top_k_tv_div": "topk_tv",
}


FSD_RULES = [(name, kind, False) for name, kind in FSD_TYPES.items()] + [
    (f"{name}_processed", FSD_TYPES[name], True) for name in ("js_div", "kl_div", "tv_div")
]


@pytest.mark.parametrize("recorded,kind,processed", FSD_RULES)
def test_fsd(recorded: str, kind: str, processed: bool) -> None:
    """Its divergences, and what is kept at each recorded threshold."""
    data = golden("fsd/fsd_cases.json.gz")
    sampling = Sampling(data["processed_config"]["temperature"], data["processed_config"]["top_k"])
    accepted = 0
    for case in data["cases"]:
        where = f"case {case['id']} ({case['kind']}) {recorded}"
        z, draft_z = torch.tensor([case["target_logits"]]), torch.tensor([case["draft_logits"]])
        probs = sampling.probs if processed else partial(torch.softmax, dim=-1)
        p, q = probs(z[0, :-1]), probs(draft_z[0])
        smoothed = divergence(kind, smooth(p), smooth(q))
        plain = smoothed if processed else divergence(kind, p, q)
        # both sides are float32, so 1e-6 means absolute below 1 and relative above
        assert_close(plain, case["div"][recorded], where, 1e-6, 1e-6)
        if not processed:
            assert_close(smoothed, case["div_eps"][recorded], f"{where} smoothed", 1e-6, 1e-6)
        unread = torch.full_like(draft_z[:, :1], torch.nan)  # the last context was not drafted from
        draft = Draft.of_chain(
            torch.tensor([[0, *case["candidate_tokens"]]]),
            logits=torch.cat([draft_z, unread], 1),
            q=torch.ones(1, z.shape[1]),
        )
        v = Verification(draft, z, sampling, torch.zeros(draft.tokens.shape))
        for threshold, mask in case["accept"][recorded].items():
            rule = Fsd(divergence=kind, threshold=float(threshold), processed=processed)
            decision = rule.decide(v)
            assert decision.accept[0, 1:].tolist() == mask, f"{where} {threshold}"
            assert int(walk(v, decision).length) == case["n_matches"][recorded][threshold]
            accepted += sum(mask)
    assert accepted > 0


def named(name: str, case: dict[str, Any]) -> tuple[Rule, Sampling]:
    params = {
        key: value for key, value in case["params"].items() if key not in ("draft", "replacement")
    }
    return registry.rule(name)(**params), Sampling(**case["sampling"])


@pytest.mark.parametrize(
    "name",
    [
        "cactus",
        "lossy",
        "cascade_opt",
        "cascade_tok",
        "r_fuzzy",
        "ensemble",
        "contrastive",
        "entropy_verify",
        "ears",
    ],
)
def test_one_token(name: str) -> None:
    compared = 0
    for case in golden(f"more_rules/{name}.json")["cases"]:
        rule, sampling = named(name, case)
        expected, token = case["expected"], case["token"]
        logits, draft_logits = (
            torch.tensor([case[key]]) for key in ("target_logits", "draft_logits")
        )
        sampled = case["params"].get("draft") != "one_hot"
        v = one_token_each(logits, draft_logits, sampling, sampled or rule.needs_q(sampling))
        accepted = acceptance(rule, v)[:, 1]
        assert_close(accepted[token], expected["accept"], case["id"])
        for other, accept in enumerate(expected.get("accept_by_token", [])):
            if accept is not None:
                assert_close(accepted[other], accept, f"{case['id']} token {other}")
        if expected["residual"] is not None:
            emitted = rule.emit(v, torch.zeros(len(v.u), dtype=torch.long))[token].double()
            assert_close(emitted / emitted.sum(), expected["residual"], case["id"])
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("name", ["fly", "asd"])
def test_chains(name: str) -> None:
    """Deterministic candidates, of ASD in blocks of one request: the number of kept tokens, the
    distribution behind them, and the budget that is spent."""
    lengths, changed = set(), 0
    for case in golden(f"more_rules/{name}.json")["cases"]:
        rule, sampling = named(name, case)
        state = rule.start([[1]], torch.device("cpu"))
        for number, block in enumerate(case.get("blocks", [case])):
            expected, where = block["expected"], f"{case['id']} block {number}"
            z, tokens = torch.tensor([block["target_logits"]]), block["tokens"]
            u = torch.tensor([[0.0, *block.get("u", [0.5] * len(tokens))]])
            draft = Draft.of_chain(torch.tensor([[0, *tokens]]))
            v = Verification(draft, z, sampling, u, state=state)
            path = walk(v, rule.decide(v))
            assert int(path.length) == expected["accepted"], where
            weights, emitted = rule.emit(v, path.last)[0].double(), expected["emit"]
            want = np.eye(len(weights))[emitted] if isinstance(emitted, int) else emitted
            assert_close(weights / weights.sum(), want, where)
            before, state = state, rule.next_state(v, path, rule.next_token(v, path.last, u[:, 0]))
            if name == "asd":
                assert float(state["spent"]) == pytest.approx(expected["spent"], abs=1e-5), where
            lengths.add(expected["accepted"])
            changed += before != state
    assert len(lengths) > 2 and (changed >= 10) == (name == "asd")
