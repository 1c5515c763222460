"""The rules of 2026 on many contexts, at their limits, and as engines are examined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.decode import Limits, Request, generate
from methods.drafters.model import ModelDrafter
from methods.method import build_method
from methods.rules._answers import Answer, Answers
from methods.rules.base import Rule
from methods.rules.cascade_tok import CascadeTok
from methods.rules.csd import Csd
from methods.rules.ensemble import Ensemble
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.lossy import Lossy
from methods.rules.mentored import Mentored
from methods.rules.near_top import NearTop
from methods.rules.secure_sd import SecureSd
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import local_reference, path_reference, rule_reference
from tests.helpers.one_token import contexts, every_token
from tests.helpers.rule_cases import random_case
from tests.helpers.tiny_models import language_model, prompts

COLD, WARM, NARROW = Sampling(0.0), Sampling(1.0), Sampling(0.6, top_k=8, top_p=0.95)
COUNT = 300
PAIRS = [(drafted, best) for drafted in range(12) for best in range(12) if (drafted * best) % 3 != 1]


def answered(v: Verification, tokens: int = 1) -> Verification:
    return Verification(v.draft, v.logits, v.sampling, v.u, state={"answered": torch.full((len(v.u),), tokens)})


def many_contexts(sampling: Sampling, sampled: bool) -> Verification:
    """COUNT chains of up to six tokens: more contexts than that are tested."""
    return answered(random_case(5, sampling, sampled=sampled, tree=False, rows=COUNT, nodes=7), 3)


CASES: list[tuple[str, Rule, Any]] = [
    ("near_top", NearTop(), {}),
    ("near_top", NearTop(threshold=0.5, top_n=3), {"threshold": 0.5, "top_n": 3}),
    ("near_top", NearTop(by="probability", threshold=0.1), {"by": "probability", "threshold": 0.1}),
    ("near_top", NearTop(threshold=0.1, protected=(2, 5), from_position=1), {
        "threshold": 0.1, "protected": (2, 5), "from_position": 1}),
    ("secure_sd", SecureSd(relaxed={"name": "lossy", "alpha": 0.6}, schedule="linear", tokens=8), {
        "schedule": "linear", "start": 0.0, "end": 1.0, "tokens": 8, "relaxed": lambda context, children:
        local_reference.lossy(context, children, alpha=0.6)}),
    ("ensemble", Ensemble(w=0.3, w_first=1.0, tokens=8), {
        "w": 0.3, "w_first": 1.0, "tokens": 8, "schedule": "linear", "local": local_reference.ensemble}),
    ("mentored", Mentored(budget=0.1), {"budget": 0.1}),
    ("csd", Csd(tau=0.05).with_pairs(PAIRS, "cpu", 12), {"pairs": PAIRS, "tau": 0.05}),
    ("cascade_tok", CascadeTok(alpha=1.0, top_set="processed"), {"alpha": 1.0, "top_set": "processed"})]


@pytest.mark.parametrize(("name", "rule", "options", "sampling"), [
    (*case, sampling) for case in CASES for sampling in (COLD, WARM, NARROW)
    if sampling.greedy or not case[1].greedy_only])
def test_an_oracle_in_float64_on_many_contexts(name: str, rule: Rule, options: Any, sampling: Sampling) -> None:
    """The same tokens are kept, and the token behind them has the same distribution."""
    v = many_contexts(sampling, sampled=not sampling.greedy)
    kept = walk(v, rule.decide(v))
    emitted = rule.emit(v, kept.last).double().numpy()
    for row in range(COUNT):
        tree = rule_reference.contexts(v, row)
        if hasattr(path_reference, name):
            length, expected = getattr(path_reference, name)(path_reference.Chain.of(tree), answered=3, **options)
        else:
            path, expected, _ = rule_reference.walk(
                tree, lambda context, children: getattr(local_reference, name)(context, children, **options))
            length = len(path) - 1
        assert int(kept.length[row]) == length, row
        np.testing.assert_allclose(emitted[row] / emitted[row].sum(), expected, atol=3e-6, err_msg=str(row))
    assert len(set(kept.length.tolist())) > 2


# --- strict limits

STRICT = [NearTop(top_n=1), NearTop(threshold=1.0), Csd(tau=1.0).with_pairs(PAIRS, "cpu", 12),
          Csd().with_pairs([], "cpu", 12)]
LOSSLESS = [Mentored(budget=0.0), SecureSd(end_eta=0.0), SecureSd(tokens=10**6), Ensemble(w=1.0, w_first=1.0),
            SecureSd(relaxed={"name": "lossy", "alpha": 0.0}, start_eta=0.5)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_greedy_matching_at_temperature_zero(seed: int, tokens: int) -> None:
    v = answered(random_case(seed, COLD, sampled=False, tree=False), tokens)
    expected = walk(v, Greedy().decide(v))
    for rule in [*STRICT, *LOSSLESS, Mentored(), Ensemble(w=0.2, w_first=0.1), SecureSd()]:
        kept = walk(v, rule.decide(v))
        assert torch.equal(kept.kept, expected.kept) and not kept.relaxed_count.any(), rule
        assert torch.equal(rule.emit(v, kept.last), Greedy().emit(v, kept.last))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([WARM, NARROW]))
def test_the_strict_setting_is_lossless(seed: int, tokens: int, sampling: Sampling) -> None:
    v = answered(random_case(seed, sampling, sampled=True, tree=False), tokens)
    expected = walk(v, Lossless().decide(v))
    for rule in LOSSLESS[:-1]:  # the last one draws its tests anew: the same law, other tokens
        kept = walk(v, rule.decide(v))
        assert torch.equal(kept.kept, expected.kept) and not kept.relaxed.any(), rule
        weights, lossless = (found.emit(v, kept.last) for found in (rule, Lossless()))
        torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), lossless / lossless.sum(-1, keepdim=True))


def test_each_rule_knows_when_it_is_lossless() -> None:
    assert all(rule.is_lossless(sampling) for rule in LOSSLESS for sampling in (COLD, WARM) if rule is not LOSSLESS[2])
    assert NearTop(top_n=1).is_lossless(COLD) and not NearTop(top_n=1).is_lossless(WARM)
    assert not any(rule.is_lossless(WARM) for rule in (NearTop(), Mentored(), SecureSd(), Ensemble(w=1.0, w_first=0.5)))


def test_a_looser_setting_keeps_no_less() -> None:
    v = answered(random_case(3, COLD, sampled=False, tree=False, rows=80), 9)
    for tighter, looser in pairwise([NearTop(threshold=x) for x in (1.0, 0.5, 0.2, 0.01)]):
        more, less = looser.decide(v).accept, tighter.decide(v).accept
        assert (more | ~less).all() and (more & ~less).any()


# --- mentored decoding: what it promises

@pytest.mark.parametrize("sampling", [WARM, NARROW], ids=str)
@pytest.mark.parametrize("budget", [0.01, 0.2, 1.0])
def test_mentored_emits_pi_within_its_budget_and_accepts_more(budget: float, sampling: Sampling) -> None:
    logits, draft_logits = contexts(2, COUNT)
    rule = Mentored(budget=budget)
    p, q = (sampling.probs(x).double() for x in (logits, draft_logits))
    pi = rule.pi(p.float(), q.float()).double()
    torch.testing.assert_close(pi.sum(-1), torch.ones(COUNT).double(), atol=1e-5, rtol=0.0)
    divergence = torch.where(p > 0, p * (p.log() - pi.log()), 0.0).sum(-1)
    assert (divergence <= budget * 1.2 + 1e-5).all()
    accepted, lossless = (torch.minimum(x, q).sum(-1) for x in (pi, p))
    assert (accepted >= lossless - 1e-6).all() and accepted.mean() > lossless.mean() + 0.005
    one = every_token(rule, logits, draft_logits, sampling)
    torch.testing.assert_close(one.emitted, pi, atol=5e-6, rtol=0.0)


def test_secure_sd_accepts_with_the_mixture_of_both_probabilities() -> None:
    """The probability of acceptance, over 1,000 numbers u."""
    shares, v = {}, answered(random_case(6, WARM, sampled=True, tree=False, rows=400, nodes=2))
    for eta in (0.0, 0.4, 1.0):
        rule = SecureSd(relaxed={"name": "ensemble", "w": 0.2}, start_eta=eta, end_eta=eta)
        shares[eta] = torch.stack([rule.decide(Verification(v.draft, v.logits, WARM, torch.full_like(v.u, u),
                                                            state=v.state)).accept[:, 1].double()
                                   for u in np.linspace(0.0005, 0.9995, 1000)]).mean(0)
    torch.testing.assert_close(shares[0.4], 0.6 * shares[0.0] + 0.4 * shares[1.0], atol=3e-3, rtol=0.0)
    assert (shares[1.0] - shares[0.0]).max() > 0.3


def test_what_top_k_removed_is_in_no_set() -> None:
    """A token that the target's filter removed is not kept because alpha is 1: pi gives it nothing."""
    logits, draft_logits = torch.tensor([[3.0, 2.0, 1.0, -5.0]]), torch.tensor([[0.0, 0.0, 0.0, 9.0]])
    sampling = Sampling(1.0, top_k=2)
    processed, paper = (every_token(CascadeTok(alpha=1.0, top_set=kind), logits, draft_logits, sampling)
                        for kind in ("processed", "paper"))
    assert float(processed.accept[0, 3]) < 1e-6 < 1.0 == float(paper.accept[0, 3])
    torch.testing.assert_close(processed.emitted, processed.p, atol=2e-4, rtol=0.0)


# --- state, files, refusals

def answers_of(rule: Rule, requests: Sequence[Request], batch: int, sampling: Sampling) -> dict[str, list[int]]:
    target, draft = language_model("llama", layers=2), language_model("llama", layers=1, seed=3)
    method = build_method(target, draft, ModelDrafter(), rule, sampling, 4)
    found = {}
    for at in range(0, len(requests), batch):
        part = requests[at:at + batch]
        generations = generate(method, part, Limits(24, frozenset()))
        found |= {request.key: g.output_ids for request, g in zip(part, generations, strict=True)}
    return found


@pytest.mark.parametrize("rule", [NearTop(after_tokens=6, threshold=1e-6), SecureSd(tokens=6),
                                  Ensemble(w=0.0, w_first=1.0, tokens=6, schedule="step")], ids=lambda rule: rule.name)
def test_the_place_in_the_answer_is_the_requests_own(rule: Rule) -> None:
    """In any batch and order; and the first tokens are those of the strict rule."""
    sampling = COLD if isinstance(rule, NearTop) else WARM
    requests = [Request(ids, f"0/place/{i}") for i, ids in enumerate(prompts(5))]
    alone = answers_of(rule, requests, 1, sampling)
    assert answers_of(rule, requests, 5, sampling) == answers_of(rule, requests[::-1], 2, sampling) == alone
    strict = answers_of(Lossless(), requests, 1, sampling)
    assert all(strict[key][:6] == tokens[:6] for key, tokens in alone.items()) and strict != alone


def test_csd_counts_the_mismatches_of_its_file(tmp_path: Path) -> None:
    target = language_model("llama", layers=2)
    file = tmp_path / "answers.json"
    record = Answers(target="t", fingerprint=target.fingerprint, draft="d", draft_fingerprint="x", corpus={}, answers=[
        Answer(answer=[5, 6, 7, 6], drafted=[5, 9, 7, 9]), Answer(answer=[6, 6], drafted=[9, 8])])
    file.write_text(record.model_dump_json())
    assert record.mismatches() == {(9, 6): 3, (8, 6): 1}
    size = target.vocab_size
    assert Csd(answers=file, count=2).bind(target, None)._pairs.tolist() == [-1, 9 * size + 6]
    assert Csd(answers=file, count=1).bind(target, None)._pairs.tolist() == [-1, 8 * size + 6, 9 * size + 6]
    for broken, message in (({"fingerprint": "other"}, "run `python -m bench.train mismatches`"),
                            ({"answers": [{"answer": [1], "drafted": []}]}, "1 tokens of an answer and 0 drafted")):
        file.write_text(json.dumps({**record.model_dump(), **broken}))
        with pytest.raises(ValueError, match=message) as refusal:
            Csd(answers=file).bind(target, None)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("build", "message"), [
    (lambda: SecureSd(relaxed={"name": "fly"}), "name=fly cannot be combined"),
    (lambda: SecureSd(relaxed={"name": "secure_sd"}), "cannot be combined"),
    (lambda: SecureSd(relaxed={"name": "ensemble", "w_first": 1.0}), "name=ensemble cannot be combined"),
    (lambda: SecureSd(relaxed={"name": "lossy", "alpha": 2}), "lossy: alpha"),
    (lambda: NearTop(protected=(10**6,)).bind(language_model("llama", layers=1), None), "rule.protected"),
    (lambda: build_method(language_model("llama"), language_model("llama", layers=1), ModelDrafter(),
                          Csd(), COLD, 3), "rule=csd|check")])
def test_refusals(build: Any, message: str) -> None:
    with pytest.raises((ValueError, AssertionError), match=message):
        build()


def test_lossy_inside_secure_sd_is_lossy_behind_the_first_tokens() -> None:
    v, rule = answered(random_case(1, WARM, sampled=True, tree=False), 50), Lossy(alpha=0.4)
    assert torch.equal(SecureSd(relaxed={"name": "lossy", "alpha": 0.4}).decide(v).accept, rule.decide(v).accept)
