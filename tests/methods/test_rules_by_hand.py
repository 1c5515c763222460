"""Rules by hand: where float32 ends, where options meet, and what a context's numbers must come
to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from methods import registry
from methods.distributions import ENTRIES, Divergence, divergence, divergences
from methods.rules.base import Rule
from methods.rules.dropmatch import words
from methods.rules.fsd import Fsd
from methods.rules.lossless import Lossless, Random
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers import rule_reference
from tests.helpers.rule_cases import every_token
from tests.helpers.rule_table import TABLE, case

COLD, WARM, TWO = Sampling(0.0), Sampling(1.0), Sampling(1.0, top_k=2)


def one_context(
    logits: list[float],
    tokens: list[int],
    u: list[float],
    sampling: Sampling = WARM,
    *,
    draft_logits: list[float] | None = None,
    sampled: bool = False,
) -> Verification:
    """A root with the given children."""
    z, draft_z = torch.tensor([logits, draft_logits or logits])[:, None, None].expand(
        -1, 1, len(tokens) + 1, -1
    )
    drafted = torch.tensor([[0, *tokens]])
    draft = Draft.of_parents(
        drafted,
        torch.tensor([[-1] + [0] * len(tokens)]),
        sampled=sampled,
        logits=draft_z,
        q=draft_z.softmax(-1).gather(2, drafted[..., None])[..., 0],
    )
    return Verification(draft, z, sampling, torch.tensor([[0.0, *u]]))


def accepted(rule: Rule, v: Verification) -> list[bool]:
    return rule.decide(v).accept[0, 1:].tolist()


def test_mars_is_strict_and_counts_where_the_ratio_means_nothing() -> None:
    for top in (-1.0, 0.0):
        v = one_context([-9.0, top, top - 0.01], [2], [0.999])
        for variant in ("algorithm1", "sampling"):
            rule = Mars(variant=variant)
            assert accepted(rule, v) == [False]
            assert int(walk(v, rule.decide(v)).flags["nonpositive_top1"].sum()) == 1
    v = one_context([-9.0, -1.0, -1.01], [2], [0.999])
    assert accepted(Mars(variant="released"), v) == [True]
    assert accepted(Mars(indicator="prob_ratio"), v) == [True]
    assert walk(v, Mars(indicator="prob_ratio").decide(v)).flags == {}


@pytest.mark.parametrize("variant", ["algorithm1", "sampling"])
def test_tied_logits(variant: str) -> None:
    """A tie has ratio 1: relaxed below theta 1, but at theta 1 the first of the tied tokens alone
    is the argmax."""
    v = one_context([1.0, 5.0, 5.0], [2], [0.999])
    assert accepted(Mars(theta=0.99, variant=variant), v) == [True]
    assert accepted(Mars(theta=1.0, variant=variant), v) == [False]


@pytest.mark.parametrize("sampled", [False, True])
def test_rejection_of_all_mass_still_emits_a_possible_token(sampled: bool) -> None:
    """Children that hold all the mass: if rounding rejects the last one too, p is drawn from, not
    emptiness."""
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
        v = one_context([0.0, 9.0, 8.7, 1.0], [3, 1, 2, 0], [0.0] * 4, TWO, sampled=sampled)
        for rule in (Lossless(), Lossless(q_mode="draft")):
            assert not accepted(rule, v)[0] and not accepted(rule, v)[3]
            assert rule.emit(v, torch.tensor([0]))[0, [0, 3]].sum() == 0


def test_children_whose_mass_rounds_to_more_than_one() -> None:
    """Twelve children hold all the mass, in float32 sometimes more; one without mass comes last and
    stays rejected."""
    vocab, rows = 13, 300
    z = torch.randn(rows, 1, vocab, generator=torch.Generator().manual_seed(0))
    z[..., -1] = -200.0
    tree = torch.tensor([[[0, *range(vocab)]], [[-1] + [0] * vocab]]).expand(-1, rows, -1)
    u = torch.full((rows, vocab + 1), 0.9)
    v = Verification(Draft.of_parents(*tree), z.expand(-1, vocab + 1, -1), WARM, u)
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


def test_divergences_computed_together_and_in_parts_are_those_computed_alone() -> None:
    """More probabilities than are taken at a time, some of them 0."""
    g = torch.Generator().manual_seed(0)
    p, q = (torch.randn(3, 500, 70, generator=g).mul(3).softmax(-1) for _ in range(2))
    p[0, :2, :30], q[0, 1:, :40] = 0.0, 0.0
    kinds: tuple[Divergence, ...] = ("js", "js_released", "kl", "kl_released", "tv")
    assert p.numel() > ENTRIES
    for kind, found in divergences(kinds, p, q).items():
        alone = torch.stack([divergence(kind, *pair) for pair in zip(p, q, strict=True)])
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-6, equal_nan=True)


def test_fsd_rejects_an_undefined_divergence() -> None:
    v = one_context([0.0, 0.0, -200.0], [0], [0.0], draft_logits=[0.0, 0.1, -200.0])
    for kind in ("js_released", "kl", "kl_released"):
        assert accepted(Fsd(divergence=kind, threshold=1e30), v) == [False]
    assert accepted(Fsd(divergence="js", threshold=0.1), v) == [True]


def test_a_token_that_the_draft_lacks_leaves_bounded_divergences_finite() -> None:
    v = one_context([2.0, 1.0, -3.0], [0], [0.0], draft_logits=[2.0, 1.0, -math.inf])
    for kind in ("js", "tv", "kl_released", "topk_js", "topk_tv"):
        assert accepted(Fsd(divergence=kind, threshold=0.1), v) == [True]
    assert accepted(Fsd(divergence="js_released", threshold=1.0), v) == [False]
    assert accepted(Fsd(divergence="js_released", threshold=1.0, processed=True), v) == [True]


@pytest.mark.parametrize("kind", ["js", "js_released", "kl", "kl_released", "tv", "topk_js"])
def test_the_ends_of_thresholds(kind: Divergence) -> None:
    """FSD at 0 keeps where both distributions are equal, and there alone; random keeps all at 1 and
    nothing at 0."""
    v = case(0, WARM, sampled=False, tree=False)
    asked = v.draft.valid & (v.draft.depth > 0)
    assert Fsd(divergence=kind, threshold=1e30).decide(v).accept[asked].all()
    assert not Fsd(divergence=kind, threshold=0.0).decide(v).accept[asked].any()
    twin = Verification(v.draft, v.draft.logits.nan_to_num(), v.sampling, torch.zeros_like(v.u))
    assert Fsd(divergence=kind, threshold=0.0).decide(twin).accept[asked].all()
    assert (
        not Random(rate=0.0).decide(twin).accept.any() and Random(rate=1.0).decide(v).accept.all()
    )


@pytest.mark.parametrize("tree", [False, True])
def test_dropmatch_with_a_draft_vocabulary_of_its_own(tree: bool) -> None:
    """Tokens that a head does not have are at minus infinity: they add the centroid's side of JS
    alone."""
    entry, by_divergence = TABLE["dropmatch"], 0
    for seed in range(4):
        v = case(seed, COLD, sampled=False, tree=tree)
        v = Verification(
            replace(v.draft, logits=v.draft.logits.clone()), v.logits, COLD, v.u, v.hidden
        )
        v.draft.logits[..., 9:] = -torch.inf
        kept, majority = (
            walk(v, entry.rule(variant=one).decide(v)).kept for one in ("js", "majority")
        )
        tested = kept & (v.draft.depth > 0)
        assert entry.rule().statistics(v)["js_centroid"][tested].isfinite().all()
        for row in range(len(v.u)):
            path, _, _ = entry.expected(rule_reference.contexts(v, row))
            assert kept[row].nonzero().flatten().tolist() == path
        by_divergence += int((kept & ~majority).sum())
    assert by_divergence > 0, "some must be kept by eq. 6 alone"


def test_masks_drop_evenly_and_do_not_repeat() -> None:
    u = torch.rand(40, 5, generator=torch.Generator().manual_seed(1))
    shares = words(u, torch.arange(500)).double() / 2**32
    assert stats.kstest(shares.flatten()[::7].numpy(), "uniform").pvalue > 1e-3
    dropped = (shares < 0.3).numpy()
    assert stats.binomtest(int(dropped.sum()), dropped.size, 0.3).pvalue > 1e-3
    for axis in (0, 2):  # neighbouring rows, neighbouring units
        lined = np.moveaxis(dropped, axis, 0)
        correlation = np.corrcoef(lined[:-1].flatten(), lined[1:].flatten())[0, 1]
        assert abs(correlation) < 4 / dropped.size**0.5


def test_what_top_k_removed_is_in_no_set() -> None:
    """A token that the target's filter removed is not kept because alpha is 1: pi gives it
    nothing."""
    logits, draft_logits = torch.tensor([[[3.0, 2.0, 1.0, -5.0]], [[0.0, 0.0, 0.0, 9.0]]])
    processed, paper = (
        every_token(TABLE["cascade_tok"].rule(alpha=1.0, top_set=kind), logits, draft_logits, TWO)
        for kind in ("processed", "paper")
    )
    assert float(processed.accept[0, 3]) < 1e-6 < 1.0 == float(paper.accept[0, 3])
    torch.testing.assert_close(processed.emitted, processed.p, atol=2e-4, rtol=0.0)


@pytest.mark.parametrize("name", ["near_top", "relaxed_topk"])
def test_a_prompt_opens_a_span_by_its_last_marker(name: str) -> None:
    """vLLM's state holder: inside where the last `begin` stands behind the last `end`.
    TensorRT-LLM: wherever there is a `begin`, unless the answer's first token is an `end`."""
    rule = registry.rule(name)(span="thinking", begin=7, end=9)
    inside = {
        (1, 2): False,
        (7,): True,
        (7, 1): True,
        (7, 1, 9, 1, 2): False,
        (7, 9, 1, 7, 1): True,
        (7, 7, 9): False,
    }
    state = rule.start(list(inside), torch.device("cpu"))
    assert state["thinking"].tolist() == list(inside.values())
    released = registry.rule(name)(span="released", begin=7, end=9)
    rows = {(7, 1, 9, 1, 2): True, (7, 9): False, (1, 9, 2): False, (1, 7): True}
    state = released.start(list(rows), torch.device("cpu"))
    assert state["thinking"].tolist() == list(rows.values())
