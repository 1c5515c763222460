"""What rules must do at the ends of their options, in corners of float32, and what they must refuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from methods import registry
from methods.rules import fsd
from methods.rules.arc import Arc
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.fsd import Divergence, Fsd, divergence, divergences
from methods.rules.greedy import Greedy
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.random import Random
from methods.rules.verification import Verification
from methods.rules.walk import Decision, walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.rule_cases import random_case, with_u

COLD, WARM = Sampling(0.0), Sampling(1.0)
CONSTANTS = Path(__file__).parents[2] / "models" / "tiny" / "arc.json"


@st.composite
def verifications(draw: st.DrawFn, greedy: bool | None = None, sampled: bool | None = None) -> Verification:
    temperature = draw(st.sampled_from([0.0] if greedy else [0.5, 1.0] if greedy is False else [0.0, 1.0]))
    sampling = Sampling(temperature, top_k=draw(st.sampled_from([0, 3])))
    from_q = temperature > 0 and (draw(st.booleans()) if sampled is None else sampled)
    return random_case(draw(st.integers(0, 10_000)), sampling, sampled=from_q, tree=draw(st.booleans()), rows=3,
                       nodes=7, vocab=draw(st.sampled_from([8, 20])), shift=draw(st.sampled_from([-20.0, 0.0, 4.0])))


def same_decisions(one: Rule, other: Rule, v: Verification) -> None:
    a, b = one.decide(v), other.decide(v)
    valid = v.draft.valid.clone()
    valid[:, 0] = False
    assert torch.equal(a.accept & valid, b.accept & valid)
    last = walk(v, a).last
    assert torch.equal(one.emit(v, last), other.emit(v, last))


@settings(max_examples=25, deadline=None)
@given(verifications(), st.sampled_from([1.0, 1.5]))
def test_mars_algorithm1_without_relaxation_is_greedy(v: Verification, theta: float) -> None:
    same_decisions(Mars(theta=theta), Greedy(), Verification(v.draft, v.logits, COLD, v.u))
    accept = Mars(theta=theta).decide(v).accept
    assert torch.equal(accept, v.is_argmax)


@settings(max_examples=25, deadline=None)
@given(verifications(greedy=False), st.sampled_from(["logit_ratio", "prob_ratio", "logit_margin"]),
       st.sampled_from(["exact", "draft"]))
def test_mars_sampling_without_relaxation_is_lossless(v: Verification, indicator: str, q_mode: str) -> None:
    same_decisions(Mars(variant="sampling", theta=1.0, indicator=indicator, q_mode=q_mode), Lossless(q_mode=q_mode), v)


@settings(max_examples=25, deadline=None)
@given(verifications(), st.floats(0.5, 0.99), st.sampled_from(["algorithm1", "sampling"]))
def test_mars_relaxes_more_with_a_smaller_theta(v: Verification, theta: float, variant: str) -> None:
    strict, loose = (Mars(variant=variant, theta=t).decide(v).accept for t in (theta, theta - 0.3))
    if v.draft.chain:  # on a tree a relaxed sibling may stand before the argmax
        assert (loose | ~strict).all()


@settings(max_examples=15, deadline=None)
@given(verifications(greedy=True))
def test_every_strict_rule_is_greedy_at_temperature_zero(v: Verification) -> None:
    for rule in (Lossless(), Lossless(q_mode="draft"), Mars(variant="released", theta=0.1, q_mode="draft"),
                 Mars(variant="sampling", theta=1.0)):
        same_decisions(rule, Greedy(), v)


@settings(max_examples=25, deadline=None)
@given(verifications(sampled=False), st.sampled_from(["js", "js_released", "kl", "kl_released", "tv", "topk_js"]))
def test_fsd_ends(v: Verification, kind: str) -> None:
    children = v.draft.valid.clone()
    children[:, 0] = False
    assert Fsd(divergence=kind, threshold=1e30).decide(v).accept[children].all()
    assert not Fsd(divergence=kind, threshold=0.0).decide(v).accept[children].any()
    twin = Verification(v.draft, v.draft.logits.nan_to_num(), v.sampling, v.u)
    assert Fsd(divergence=kind, threshold=0.0).decide(twin).accept[children].all()


@settings(max_examples=25, deadline=None)
@given(verifications())
def test_random_ends(v: Verification) -> None:
    assert Random(rate=1.0).decide(v).accept.all()
    assert not Random(rate=0.0).decide(with_u(v, torch.zeros_like(v.u))).accept.any()


@settings(max_examples=25, deadline=None)
@given(verifications(), st.booleans())
def test_padding_is_never_kept_nor_seen(v: Verification, among_themselves: bool) -> None:
    """Whatever stands in padding nodes, and wherever they hang, changes nothing; not even the target's own choice."""
    elsewhere = torch.arange(v.draft.nodes) - 1 if among_themselves else v.draft.parents
    parents = torch.where(v.draft.valid, v.draft.parents, elsewhere)
    junk = torch.where(v.draft.valid, v.draft.tokens, v.at_parent(v.argmax))
    q = torch.where(v.draft.valid, v.draft.q, torch.nan)
    chain, draft = v.draft.chain, v.draft
    other = (Draft.of_chain(junk, valid=draft.valid, sampled=draft.sampled, logits=draft.logits, q=q) if chain else
             Draft.of_parents(junk, parents, valid=draft.valid, sampled=draft.sampled, logits=draft.logits, q=q))
    noisy = Verification(other, torch.where(draft.valid[..., None], v.logits, torch.nan), v.sampling, v.u)
    for rule in (Lossless(), Lossless(q_mode="draft"), Mars(), Mars(variant="released"), Fsd(), Random()):
        expected, found = walk(v, rule.decide(v)), walk(noisy, rule.decide(noisy))
        assert torch.equal(expected.kept, found.kept) and torch.equal(expected.relaxed_count, found.relaxed_count)
        assert not (found.kept & ~draft.valid).any()
        assert torch.equal(rule.emit(v, expected.last), rule.emit(noisy, found.last))


def one_context(logits: list[float], tokens: list[int], u: list[float], sampling: Sampling = WARM, *,
                draft_logits: list[float] | None = None, sampled: bool = False) -> Verification:
    """A root with the given children."""
    n, vocab = len(tokens) + 1, len(logits)
    z = torch.tensor(logits).expand(1, n, vocab)
    draft_z = z if draft_logits is None else torch.tensor(draft_logits).expand(1, n, vocab)
    all_tokens = torch.tensor([[0, *tokens]])
    draft = Draft.of_parents(all_tokens, torch.tensor([[-1] + [0] * len(tokens)]), sampled=sampled, logits=draft_z,
                             q=draft_z.softmax(-1).gather(2, all_tokens[..., None])[..., 0])
    return Verification(draft, z, sampling, torch.tensor([[0.0, *u]]))


def accepted(rule: Rule, v: Verification) -> list[bool]:
    return rule.decide(v).accept[0, 1:].tolist()


def test_mars_relaxes_the_runner_up_only() -> None:
    v = one_context([1.0, 10.0, 9.5, 9.4], [2, 1], [0.99] * 2)
    assert accepted(Mars(theta=0.9), v) == [False, True]  # v1 is a child too, so v1 wins
    assert accepted(Mars(theta=0.9, variant="sampling"), v) == [True, True]
    v = one_context([1.0, 10.0, 9.5, 9.4], [3, 2], [0.99] * 2)
    assert accepted(Mars(theta=0.9), v) == [False, True]
    assert accepted(Mars(theta=0.95), v) == [False, False]  # the ratio is exactly theta
    kept = walk(v, Mars(theta=0.9).decide(v))
    assert (int(kept.last), int(kept.relaxed_count), int(kept.greedier_count)) == (2, 1, 0)
    v = one_context([1.0, 10.0, 9.5, 9.4], [2, 1], [0.99] * 2)
    v.draft.valid[0, 2] = False
    assert accepted(Mars(theta=0.9), v)[0]  # v1 among the padding does not win


def test_mars_is_strict_and_counts_where_the_ratio_means_nothing() -> None:
    for top in (-1.0, 0.0):
        v = one_context([-9.0, top, top - 0.01], [2], [0.999])
        for variant in ("algorithm1", "sampling"):
            rule = Mars(variant=variant)
            assert accepted(rule, v) == [False]
            assert int(walk(v, rule.decide(v)).flag_counts["nonpositive_top1"]) == 1
    v = one_context([-9.0, -1.0, -1.01], [2], [0.999])
    assert accepted(Mars(variant="released"), v) == [True]
    assert accepted(Mars(indicator="prob_ratio"), v) == [True]
    assert walk(v, Mars(indicator="prob_ratio").decide(v)).flags == {}


def test_mars_released_skips_others_untested() -> None:
    """A child outside the top two would pass its lossless test, but is skipped; the correction is the whole p."""
    v = one_context([9.0, 10.0, 9.9], [0], [0.0])
    rule = Mars(variant="released")
    assert accepted(rule, v) == [False] and accepted(Lossless(), v) == [True]
    torch.testing.assert_close(rule.emit(v, torch.tensor([0])), v.p[:, 0])


@pytest.mark.parametrize("variant", ["algorithm1", "sampling"])
def test_tied_logits(variant: str) -> None:
    """A tie has ratio 1: relaxed below theta 1, but at theta 1 the first of the tied tokens alone is the argmax."""
    v = one_context([1.0, 5.0, 5.0], [2], [0.999])
    assert accepted(Mars(theta=0.99, variant=variant), v) == [True]
    assert accepted(Mars(theta=1.0, variant=variant), v) == [False]


@pytest.mark.parametrize("sampled", [False, True])
def test_rejection_of_all_mass_still_emits_a_possible_token(sampled: bool) -> None:
    """Children that hold all the mass: if rounding rejects the last one too, p is drawn from, not emptiness."""
    almost_one = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))
    for sampling in (WARM, Sampling(0.3, top_k=2), Sampling(1.0, top_k=1)):
        v = one_context([0.0, 9.0, 8.7, -60.0], [1, 2], [almost_one] * 2, sampling, sampled=sampled)
        rule = Lossless()
        weights = rule.emit(v, torch.tensor([0]))
        assert weights.sum() > 0
        token = rule.next_token(v, torch.tensor([0]), torch.tensor([almost_one]))
        assert float(v.p[0, 0, token]) > 0


def test_token_without_target_mass_is_never_accepted() -> None:
    for sampled in (False, True):
        v = one_context([0.0, 9.0, 8.7, 1.0], [3, 1, 2, 0], [0.0] * 4, Sampling(1.0, top_k=2), sampled=sampled)
        for rule in (Lossless(), Lossless(q_mode="draft")):
            assert not accepted(rule, v)[0] and not accepted(rule, v)[3]
            assert rule.emit(v, torch.tensor([0]))[0, [0, 3]].sum() == 0


def test_children_whose_mass_rounds_to_more_than_one() -> None:
    """Twelve children hold all the mass, in float32 sometimes more; one without mass comes last and stays rejected."""
    vocab, rows = 13, 300
    z = torch.randn(rows, 1, vocab, generator=torch.Generator().manual_seed(0)).expand(-1, vocab + 1, -1).clone()
    z[..., -1] = -200.0
    draft = Draft.of_parents(torch.tensor([[0, *range(vocab)]]).expand(rows, -1),
                             torch.tensor([[-1] + [0] * vocab]).expand(rows, -1))
    v = Verification(draft, z, WARM, torch.full((rows, vocab + 1), 0.9))
    before_last = v.earlier_siblings[:, -1:].float() @ v.p_token[..., None]
    assert (before_last > 1).any()
    assert not Lossless().decide(v).accept[:, -1].any()


def test_tiny_draft_probability_is_certain_acceptance() -> None:
    v = one_context([0.0, 5.0], [1], [0.99], draft_logits=[120.0, 0.0])
    assert float(v.draft.q[0, 1]) == 0.0
    assert accepted(Lossless(q_mode="draft"), v) == [True]


def test_divergence_where_probabilities_vanish() -> None:
    p = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    q = torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.25, 0.75, 0.0, 0.0]])
    assert divergence("js", p, q)[0].item() == pytest.approx(math.log(2) / 2)
    assert divergence("tv", p, q).tolist() == [0.5, 0.25]
    for kind in ("kl", "kl_released", "js_released"):  # 0 against 0, as in the released code
        assert divergence(kind, p, q).isnan().all()
    for kind in ("kl", "js_released"):
        assert divergence(kind, p[:1, :3], q[:1, :3]).item() == math.inf
    assert divergence("kl_released", p[1:, :3], torch.tensor([[0.5, 0.5, 0.0]])).isnan().all()
    one_sided = divergence("kl_released", torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
    assert one_sided.item() == pytest.approx(math.log(2))
    disjoint = divergence("js", torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    assert disjoint.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("zeros", [False, True])
def test_divergences_computed_together_and_in_parts_are_those_computed_alone(
        zeros: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = (torch.randn(3, 5, 70).mul(3).softmax(-1) for _ in range(2))
    if zeros:
        p[0, :2, :30], q[0, 1:, :40] = 0.0, 0.0
    kinds: tuple[Divergence, ...] = ("js", "js_released", "kl", "kl_released", "tv")
    alone = {kind: divergence(kind, p, q) for kind in kinds}
    monkeypatch.setattr(fsd, "ENTRIES", 2 * 70)  # two of the 15 contexts at a time
    for kind, found in divergences(kinds, p, q).items():
        torch.testing.assert_close(found, alone[kind], rtol=1e-4, atol=1e-6, equal_nan=True)


def test_fsd_rejects_an_undefined_divergence() -> None:
    v = one_context([0.0, 0.0, -200.0], [0], [0.0], draft_logits=[0.0, 0.1, -200.0])
    for kind in ("js_released", "kl", "kl_released"):
        assert accepted(Fsd(divergence=kind, threshold=1e30), v) == [False]
    assert accepted(Fsd(divergence="js", threshold=0.1), v) == [True]


def test_fsd_correction() -> None:
    v = one_context([1.0, 3.0, 2.0], [0], [0.0])
    root = torch.tensor([0])
    torch.testing.assert_close(Fsd().emit(v, root), v.p[:, 0])
    assert Fsd(correction="greedy").emit(v, root).tolist() == [[0.0, 1.0, 0.0]]


def test_walk_counts_flags_along_the_path() -> None:
    draft = Draft.of_chain(torch.zeros(2, 4, dtype=torch.long))
    v = Verification(draft, torch.zeros(2, 4, 3), WARM, torch.zeros(2, 4))
    accept = torch.tensor([[True, True, False, True], [True, True, True, True]])
    flags = {"relaxed": torch.ones_like(accept)}
    found = walk(v, Decision(accept, lossless_accept=torch.zeros_like(accept), flags=flags))
    assert found.length.tolist() == found.last.tolist() == found.greedier_count.tolist() == [1, 3]
    assert found.flag_counts["relaxed"].tolist() == [2, 4] and found.relaxed_count.tolist() == [0, 0]


LOOKUP = DraftCapabilities("prompt_lookup", has_q=False, sampled=False)
MODEL = DraftCapabilities("model", has_q=True, sampled=True)
HEAD = DraftCapabilities("eagle3", has_q=True, sampled=False, full_vocabulary=False)


@pytest.mark.parametrize("rule,candidates,sampling,message", [
    (Greedy(), MODEL, WARM, "temperature 0 only"),
    (Fsd(), LOOKUP, WARM, "prompt_lookup has none"),
    (Fsd(processed=True), MODEL, COLD, "temperature above 0"),
    (Fsd(), HEAD, WARM, "vocabulary of drafter=eagle3 is reduced"),
    (Fsd(divergence="topk_kl"), HEAD, WARM, "vocabulary of drafter=eagle3 is reduced"),
    (Lossless(q_mode="draft"), LOOKUP, WARM, "prompt_lookup has none"),
    (Mars(variant="released", q_mode="draft"), LOOKUP, WARM, "prompt_lookup has none"),
    (Mars(q_mode="draft"), MODEL, WARM, "variant=algorithm1 does not read q"),
    (Arc(q_mode="draft", constants=CONSTANTS), LOOKUP, WARM, "prompt_lookup has none"),
])
def test_refusals(rule: Rule, candidates: DraftCapabilities, sampling: Sampling, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        rule.check(candidates, sampling)
    assert "\n" not in str(refusal.value)


def test_a_rule_that_reads_q_above_temperature_0_runs_on_any_drafter_at_0() -> None:
    arc = Arc(q_mode="draft", constants=CONSTANTS)
    arc.check(MODEL, WARM)
    for rule in (arc, Lossless(q_mode="draft"), Mars(variant="released", q_mode="draft")):
        assert rule.needs_q(WARM) and not rule.needs_q(COLD)
        rule.check(LOOKUP, COLD)


SHARES = {  # options that are probabilities or weights
    "arc": ("keep", "floor"), "autojudge": ("threshold",), "cascade_opt": ("head",), "cascade_tok": ("alpha",),
    "ensemble": ("w", "w_first"), "judge": ("threshold",), "random": ("rate",), "relaxed_topk": ("delta",),
    "secure_sd": ("start_eta", "end_eta"), "threshold": ("single",), "typical": ("epsilon", "delta")}


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in SHARES for option in SHARES[name]])
def test_a_share_may_be_0_and_1_and_nothing_beyond(name: str, option: str) -> None:
    field = TypeAdapter(Annotated[registry.rule(name).model_fields[option].annotation,
                                  registry.rule(name).model_fields[option]])
    assert [field.validate_python(value) for value in (0.0, 1.0)] == [0.0, 1.0]
    for value in (-1e-9, 1 + 1e-9):
        with pytest.raises(ValidationError):
            field.validate_python(value)


@pytest.mark.parametrize("rule", [Greedy(), Lossless(), Mars(), Mars(variant="released"), Random(rate=0.6)])
def test_rules_without_q_run_on_any_drafter(rule: Rule) -> None:
    rule.check(LOOKUP, COLD)
    v = one_context([1.0, 3.0, 2.0], [1], [0.5], COLD)
    bare = Verification(Draft.of_parents(v.draft.tokens, v.draft.parents), v.logits, COLD, v.u)
    assert int(walk(bare, rule.decide(bare)).length) == 1


def test_reduced_vocabulary_is_no_obstacle_to_bounded_divergences() -> None:
    v = one_context([2.0, 1.0, -3.0], [0], [0.0], draft_logits=[2.0, 1.0, -math.inf])
    for kind in ("js", "tv", "kl_released", "topk_js", "topk_tv"):
        rule = Fsd(divergence=kind, threshold=0.1)
        rule.check(HEAD, WARM)
        assert accepted(rule, v) == [True]
    assert accepted(Fsd(divergence="js_released", threshold=1.0), v) == [False]
    smoothed = Fsd(divergence="js_released", threshold=1.0, processed=True)
    smoothed.check(HEAD, WARM)
    assert accepted(smoothed, v) == [True]
