"""Rules of production engines and of arXiv 2607.08690: strict limits, the distributions they emit, how far from the
target's, refusals."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import registry
from methods.method import check
from methods.rules.arc import Arc
from methods.rules.base import Rule
from methods.rules.cascade_tok import CascadeTok
from methods.rules.contrastive import Contrastive
from methods.rules.ensemble import Ensemble
from methods.rules.entropy_verify import EntropyVerify
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.threshold import Threshold
from methods.rules.topp_window import ToppWindow
from methods.rules.typical import Typical
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.one_token import OneToken, contexts, every_token
from tests.helpers.rule_cases import acceptance, first_token, random_case, with_u
from tests.helpers.rule_pairs import logits_behind_leaves

STRICT: dict[str, dict[str, Any]] = {
    "cactus": {"delta": 0.0}, "lossy": {"alpha": 0.0}, "cascade_opt": {"alpha": -1.1},
    "r_fuzzy": {"threshold": 0.0}, "ensemble": {"w": 1.0}, "contrastive": {"beta": 0.0}, "threshold": {},
    "entropy_verify": {"threshold": 1.0, "alpha": 0.0}, "ears": {"tolerance": 0.0}}
RELAXED = [registry.rule(name)(**options) for name, options in [
    ("cactus", {}), ("lossy", {}), ("cascade_opt", {"alpha": 0.3}), ("cascade_tok", {}),
    ("cascade_tok", {"variant": "lossless_tail"}), ("r_fuzzy", {}), ("ensemble", {}),
    ("contrastive", {"temperature": 1.5}), ("threshold", {"single": 0.3}), ("threshold", {"acc": 0.6}),
    ("entropy_verify", {}), ("ears", {})]]
GREEDY_AT_0: list[Rule] = [Typical(), Mars(variant="released"), ToppWindow()]
MODEL, GREEDY_MODEL = registry.drafter("model")(), registry.drafter("model")(sample=False)
SETTINGS = [Sampling(1.0), Sampling(0.6, top_k=8, top_p=0.95), Sampling(1.3, top_p=0.85)]
WARM, COLD = Sampling(1.0), Sampling(0.0)


def strict(name: str) -> Rule:
    return registry.rule(name)(**STRICT[name])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(SETTINGS), st.sampled_from([-20.0, 0.0, 4.0]))
@pytest.mark.parametrize("name", sorted(set(STRICT) - {"contrastive", "threshold"}))
def test_the_strict_setting_is_lossless(name: str, seed: int, sampling: Sampling, shift: float) -> None:
    """The same decision at every node for the same number, the same emitted distribution, nothing relaxed."""
    v = random_case(seed, sampling, sampled=True, tree=False, shift=shift)
    decision, expected = strict(name).decide(v), Lossless().decide(v)
    children = v.draft.valid & (v.draft.depth > 0)
    assert torch.equal(decision.accept & children, expected.accept & children)
    kept = walk(v, decision)
    assert not kept.relaxed.any() and not kept.greedier.any()
    torch.testing.assert_close(strict(name).emit(v, kept.last), Lossless().emit(v, kept.last), atol=1e-7, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.sampled_from([-20.0, 0.0, 4.0]))
@pytest.mark.parametrize("name", ["threshold", "entropy_verify", "ears"])
def test_the_strict_setting_is_lossless_for_deterministic_candidates(name: str, seed: int, tree: bool, narrow: bool,
                                                                     shift: float) -> None:
    rule = strict(name)
    sampling = SETTINGS[1] if narrow else WARM
    v = random_case(seed, sampling, sampled=False, tree=tree and not rule.chain_only, shift=shift)
    kept, expected = walk(v, rule.decide(v)), walk(v, Lossless().decide(v))
    assert torch.equal(kept.kept, expected.kept) and not kept.relaxed.any()
    assert torch.equal(rule.emit(v, kept.last), Lossless().emit(v, kept.last))


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("name", STRICT)
def test_the_strict_setting_emits_p_exactly(name: str, sampling: Sampling) -> None:
    """All tokens that may be drafted, weighted by q, the test integrated out."""
    one = every_token(strict(name), *contexts(1, 300), sampling)
    torch.testing.assert_close(one.emitted, one.p, atol=2e-6, rtol=0.0)


@pytest.mark.parametrize("rule", RELAXED, ids=repr)
def test_the_same_check_sees_a_relaxed_rule(rule: Rule) -> None:
    assert every_token(rule, *contexts(1, 300), WARM).bias > 0.005


def pi_of(rule: Rule, logits: torch.Tensor, draft_logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """[B, V] the distribution that the source of a rule samples from, float64."""
    z, draft_z = logits.double(), draft_logits.double()
    p, q = sampling.probs(logits).double(), sampling.probs(draft_logits).double()
    if isinstance(rule, Ensemble):
        return rule.w * p + (1 - rule.w) * q
    if isinstance(rule, Contrastive):
        mixed = ((1 + rule.beta) * z - rule.beta * draft_z) / (rule.temperature or sampling.temperature)
        return torch.where(p > 0, mixed, -torch.inf).softmax(-1)
    assert isinstance(rule, CascadeTok) and rule.top_set == "paper"
    top = z >= z.amax(-1, keepdim=True) + torch.tensor(1 - rule.alpha).double().log()
    return torch.where(top, q, 0.0) + torch.where(top, 0.0, q).sum(-1, keepdim=True) * p


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("rule", [
    Ensemble(w=0.8), Ensemble(w=0.0), Contrastive(), Contrastive(beta=0.1, temperature=2.0), CascadeTok(),
    CascadeTok(alpha=0.8)], ids=repr)
def test_pi_is_emitted_exactly(rule: Rule, sampling: Sampling) -> None:
    logits, draft_logits = contexts(2, 300)
    one = every_token(rule, logits, draft_logits, sampling)
    torch.testing.assert_close(one.emitted, pi_of(rule, logits, draft_logits, sampling), atol=2e-6, rtol=0.0)


def test_the_bonus_of_contrastive_is_pi() -> None:
    """drawn in the last context of a chain, whose draft logits the drafter computed."""
    v = logits_behind_leaves(random_case(0, WARM, sampled=True, tree=False))
    last = v.draft.valid.sum(1) - 1
    pi = pi_of(Contrastive(), v.at(v.logits, last), v.at(v.draft_logits, last), WARM)
    torch.testing.assert_close(Contrastive().emit(v, last).double(), pi, atol=2e-6, rtol=0.0)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(v.p_at(last).double(), pi, atol=2e-6, rtol=0.0)


@pytest.mark.parametrize("sampled", [True, False])
def test_threshold_one_is_lossless_for_any_siblings(sampled: bool) -> None:
    """The first token has the distribution p for each single tree, whatever its tokens are drawn from."""
    for seed in range(5):
        v = random_case(seed, WARM, sampled=sampled, tree=True)
        torch.testing.assert_close(first_token(Threshold(), v), v.p[:, 0].double(), atol=1e-5, rtol=0.0)
        biased = first_token(Threshold(acc=0.6), v) - v.p[:, 0].double()
        assert biased.abs().sum(-1).max() > 0.05


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_temperature_zero_is_greedy_matching(seed: int, tree: bool) -> None:
    for rule in [*RELAXED, *GREEDY_AT_0, Ensemble(variant="transformers", w=1.0)]:
        if isinstance(rule, Contrastive):
            continue
        v = random_case(seed, COLD, sampled=False, tree=tree and not rule.chain_only)
        kept, expected = walk(v, rule.decide(v)), walk(v, Greedy().decide(v))
        assert torch.equal(kept.kept, expected.kept)
        assert torch.equal(rule.emit(v, kept.last), Greedy().emit(v, kept.last))


LOOSER = {"cactus": [{"delta": x} for x in (0.0, 0.1, 1.0, 10.0)], "lossy": [{"alpha": x} for x in (0.0, 0.3, 0.95)],
          "cascade_opt": [{"alpha": x} for x in (-1.1, -0.1, 0.05, 1.0)],
          "r_fuzzy": [{"threshold": x} for x in (0.0, 0.03, 0.15)],
          "ensemble": [{"w": x} for x in (1.0, 0.95, 0.5, 0.0)], "ears": [{"tolerance": x} for x in (0.0, 0.3, 1.0)],
          "threshold": [{"single": x} for x in (1.0, 0.5, 0.0)],
          "entropy_verify": [{"threshold": x, "alpha": a} for x, a in ((1, 0), (0.95, 0), (0.95, 0.4), (0.5, 1))]}


@pytest.mark.parametrize("name", LOOSER)
def test_a_looser_setting_accepts_no_less(name: str) -> None:
    v = random_case(3, WARM, sampled=True, tree=False, rows=40)
    accepts = [acceptance(registry.rule(name)(**options), v)[:, 1:] for options in LOOSER[name]]
    for tighter, looser in pairwise(accepts):
        assert (looser >= tighter - 1e-6).all() and (looser > tighter + 0.01).any()


def test_every_rule_knows_when_it_is_lossless() -> None:
    for name in STRICT:
        assert strict(name).is_lossless(WARM)
    for rule in RELAXED:
        assert not rule.is_lossless(WARM)
        assert isinstance(rule, Contrastive) or rule.is_lossless(COLD)
    for rule in [*GREEDY_AT_0, Arc(variant="released")]:
        assert rule.is_lossless(COLD) and not rule.is_lossless(WARM)
    assert not any(rule.is_lossless(COLD) for rule in (Mars(), Mars(variant="sampling"), Arc()))
    assert not Ensemble(variant="transformers").is_lossless(COLD)
    assert not registry.rule("cascade_opt")(alpha=-1.1, gate="paper").is_lossless(WARM)


@pytest.mark.parametrize("w", [None, 0.8, 0.3])
def test_ensemble_is_that_of_transformers(monkeypatch: pytest.MonkeyPatch, w: float | None) -> None:
    """The installed `_speculative_sampling` with our random numbers: as many matches, the same weights of the draw."""
    from transformers.generation import utils

    rule = Lossless() if w is None else Ensemble(w=w)
    lengths, weights = set(), []
    both = [random_case(seed, WARM, sampled=True, tree=False, rows=2, nodes=5) for seed in range(12)]
    monkeypatch.setattr(torch, "multinomial", lambda p, num_samples: weights.append(p) or torch.zeros(1, 1).long())
    for case in both:  # the second row has no padding
        draft = Draft.of_chain(case.draft.tokens[1:], sampled=True, logits=case.draft.logits[1:], q=case.draft.q[1:])
        v = Verification(draft, case.logits[1:], WARM, case.u[1:])
        kept = walk(v, rule.decide(v))
        monkeypatch.setattr(torch, "rand_like", lambda x, u=v.u[0, 1:]: u.expand(x.shape))
        tokens, matches = utils._speculative_sampling(v.draft.tokens, v.draft_logits[:, :4], 4, v.logits, w)
        assert int(matches) == int(kept.length) and tokens.shape[1] == int(matches) + 1
        emitted = rule.emit(v, kept.last)
        torch.testing.assert_close(weights[-1].flatten(), emitted[0] / emitted.sum(), atol=1e-6, rtol=1e-5)
        lengths.add(int(matches))
    assert len(lengths) > 2


def test_always_accept() -> None:
    v = random_case(0, WARM, sampled=True, tree=False)
    v = with_u(v, torch.full_like(v.u, float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))))
    assert Ensemble(w=0.0).decide(v).accept[:, 1:][v.draft.valid[:, 1:]].all()


# What the docstrings say of their distance to the target on 2,000 contexts.

def measured(rule: Rule) -> OneToken:
    return every_token(rule, *contexts(0, 2000), WARM)


@pytest.mark.parametrize(("rule", "file", "number"), [
    (EntropyVerify(), "entropy_verify", "TV {bias:.2f} and acceptance {rate:.2f} (lossless: {lossless:.2f})"),
    (CascadeTok(alpha=0.0), "cascade_tok", "blend TV {bias:.2f} and acceptance {rate:.2f} (lossless: {lossless:.2f})"),
    (CascadeTok(variant="lossless_tail", alpha=0.0), "cascade_tok", "lossless_tail TV {bias:.2f}")], ids=repr)
def test_the_distance_that_the_docstring_states(rule: Rule, file: str, number: str) -> None:
    one = measured(rule)
    text = number.format(bias=one.bias, rate=one.rate, lossless=measured(Lossless()).rate)
    docstring = (Path(__file__).parents[2] / "methods" / "rules" / f"{file}.py").read_text()
    assert text in re.sub(r"\s+", " ", docstring), text
    assert one.bias > 0.02


@pytest.mark.parametrize(("rule", "drafter", "sampling", "message"), [
    *((rule, registry.drafter("eagle3")(), WARM, "is defined for chains") for rule in RELAXED if rule.chain_only),
    (Contrastive(), registry.drafter("eagle2")(tree="chain"), WARM, "does not compute it"),
    *((rule, GREEDY_MODEL, WARM, "drawn from the draft distribution") for rule in RELAXED if rule.sampled_only),
    (Contrastive(), MODEL, COLD, "not for temperature 0"),
    (Ensemble(variant="transformers"), registry.drafter("prompt_lookup")(), COLD, "prompt_lookup"),
], ids=lambda value: getattr(value, "name", None))
def test_refusals(rule: Rule, drafter: Any, sampling: Sampling, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        check(drafter, "prompt_lookup" if message == "prompt_lookup" else "given", rule, sampling)
    assert "\n" not in str(refusal.value)


def test_what_runs() -> None:
    for rule in RELAXED:
        check(MODEL, "model", rule, WARM)
        check(registry.drafter("early_exit")(), "early_exit", rule, WARM)
        if not isinstance(rule, Contrastive):
            check(MODEL, "model", rule, COLD)
    for rule in (EntropyVerify(), registry.rule("ears")(), Threshold()):
        check(registry.drafter("prompt_lookup")(), "prompt_lookup", rule, WARM)
        check(registry.drafter("eagle2")(tree="chain"), "eagle2", rule, WARM)
    check(registry.drafter("medusa")(), "medusa", Threshold(), WARM)


def test_padding_is_never_kept_nor_seen() -> None:
    """Whatever stands in padding nodes changes nothing."""
    for seed in range(3):
        v = logits_behind_leaves(random_case(seed, SETTINGS[1], sampled=True, tree=False))
        junk = torch.where(v.draft.valid, v.draft.tokens, v.at_parent(v.argmax))
        q = torch.where(v.draft.valid, v.draft.q, torch.nan)
        draft = Draft.of_chain(junk, valid=v.draft.valid, sampled=True, logits=v.draft.logits, q=q)
        noisy = Verification(draft, torch.where(draft.valid[..., None], v.logits, torch.nan), v.sampling, v.u)
        for rule in RELAXED:
            expected, found = walk(v, rule.decide(v)), walk(noisy, rule.decide(noisy))
            assert torch.equal(expected.kept, found.kept) and torch.equal(expected.relaxed, found.relaxed)
            assert torch.equal(rule.emit(v, expected.last), rule.emit(noisy, found.last))
