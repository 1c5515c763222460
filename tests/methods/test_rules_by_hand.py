"""Rules by hand: where float32 ends, where options meet, and what a context's numbers must come
to."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
import torch

from methods import registry
from methods.distributions import ENTRIES, Divergence, divergence, divergences
from methods.rules.base import Rule
from methods.rules.fsd import Fsd
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.mismatches import Asd
from methods.rules.verification import Verification
from methods.rules.walk import Decision, walk
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers import rule_reference
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


@pytest.mark.parametrize(
    ("logits", "options", "accept", "flagged"),
    [
        ([-9.0, -1.0, -1.01], {}, False, 1),
        ([1.0, 5.0, 5.0], {"theta": 0.99}, True, 0),
        ([1.0, 5.0, 5.0], {"theta": 1.0}, False, 0),
    ],
)
def test_mars_where_the_ratio_means_nothing_and_where_logits_tie(
    logits: list[float], options: dict[str, Any], accept: bool, flagged: int
) -> None:
    """The runner-up, which the lossless test refuses. No ratio of logits below 0; of tied tokens the
    first alone is the argmax."""
    rule, v = Mars(**options), one_context(logits, [2], [0.999])
    assert accepted(rule, v) == [accept]
    flags = walk(v, rule.decide(v)).flags
    assert sum(int(count.sum()) for count in flags.values()) == flagged


def test_kept_mismatches_are_charged_to_the_request() -> None:
    """Two of regret 0.5, and the argmax between them."""
    draft = Draft.of_chain(torch.tensor([[0, 1, 0, 1]]))
    z, u = torch.tensor([3.0, 2.5, 1.0]).expand(1, 4, 3), torch.zeros(1, 4)
    rule = Asd(budget=3.0, regret_per_value=1.0)
    v = Verification(draft, z, COLD, u, state={"spent": torch.tensor([1.25])})
    path = walk(v, rule.decide(v))
    after = rule.next_state(v, path, v.argmax[:, 3])
    assert (path.length.tolist(), after["spent"].tolist()) == ([3], [2.25])


@pytest.mark.parametrize("sampled", [False, True])
def test_what_has_no_mass_is_neither_kept_nor_emitted(sampled: bool) -> None:
    """Children that hold all the mass: if rounding rejects the last one too, p is drawn from, not
    emptiness. A token outside of top-k is not kept, however small its number is."""
    almost_one = float(torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)))
    root, logits = torch.tensor([0]), [0.0, 9.0, 8.7, -60.0]
    for sampling in (WARM, Sampling(0.3, top_k=2), Sampling(1.0, top_k=1)):
        v = one_context(logits, [1, 2], [almost_one] * 2, sampling, sampled=sampled)
        assert Lossless().emit(v, root).sum() > 0
        token = Lossless().next_token(v, root, torch.tensor([almost_one]))
        assert float(v.p[0, 0, token]) > 0
    v = one_context(logits, [3, 1, 2, 0], [0.0] * 4, TWO, sampled=sampled)
    for rule in (Lossless(), Lossless(q_mode="draft")):
        assert not accepted(rule, v)[0] and not accepted(rule, v)[3]
        assert rule.emit(v, root)[0, [0, 3]].sum() == 0


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


def test_divergences_are_those_of_their_formulas() -> None:
    """Over more tokens than top-k names, in more contexts than are computed at a time, some of which
    lack tokens."""
    draw = torch.Generator().manual_seed(0)
    p, q = torch.randn(2, 1500, 70, generator=draw).mul(3).softmax(-1)
    q[:, ::7] = 0.0
    assert p.numel() > ENTRIES
    topk, plain = (
        [kind for kind in get_args(Divergence) if kind.startswith("topk_") == is_topk]
        for is_topk in (True, False)
    )
    found = divergences(plain, p, q) | {kind: divergence(kind, p, q) for kind in topk}
    for kind, values in found.items():
        with np.errstate(divide="ignore"):
            rows = zip(p.double().numpy(), q.double().numpy(), strict=True)
            expected = [rule_reference.distance(kind, *row) for row in rows]
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-6, err_msg=kind)


@pytest.mark.parametrize(
    ("draft_end", "options", "accept"),
    [
        (-200.0, {"divergence": "js_released", "threshold": 1e30}, False),
        (-200.0, {"divergence": "kl_released", "threshold": 1e30}, False),
        (-math.inf, {"divergence": "js_released", "threshold": 1.0}, False),
        (-math.inf, {"divergence": "js_released", "threshold": 1.0, "processed": True}, True),
    ],
)
def test_fsd_of_a_token_without_mass(
    draft_end: float, options: dict[str, Any], accept: bool
) -> None:
    """An undefined divergence rejects; a bounded one is finite where the draft lacks a token."""
    target_end = -200.0 if draft_end > -math.inf else -3.0
    v = one_context([1.0, 1.0, target_end], [0], [0.0], draft_logits=[1.0, 1.1, draft_end])
    assert accepted(Fsd(**{"threshold": 0.1} | options), v) == [accept]


@pytest.mark.parametrize("kind", get_args(Divergence))
def test_a_threshold_of_0_keeps_where_both_distributions_are_equal(kind: Divergence) -> None:
    v = case(0, WARM, sampled=False, tree=False)
    twin = Verification(v.draft, v.draft.logits.nan_to_num(), v.sampling, v.u)
    asked = v.draft.valid & (v.draft.depth > 0)
    rule = Fsd(divergence=kind, threshold=0.0)
    assert not rule.decide(v).accept[asked].any() and rule.decide(twin).accept[asked].all()


def test_dropmatch_with_a_draft_vocabulary_of_its_own() -> None:
    """Tokens that a head does not have are at minus infinity: they add the centroid's side of JS
    alone."""
    entry, v = TABLE["dropmatch"], case(0, COLD, sampled=False, tree=False)
    draft = replace(v.draft, logits=v.draft.logits.clone())
    draft.logits[..., 9:] = -torch.inf
    v = Verification(draft, v.logits, COLD, v.u, v.hidden)
    kept, majority = (
        walk(v, entry.rule(variant=variant).decide(v)).kept for variant in ("js", "majority")
    )
    for row in range(len(v.u)):
        path, _, _ = entry.expected(rule_reference.contexts(v, row))
        assert kept[row].nonzero().flatten().tolist() == path
    assert (kept & ~majority).any(), "some must be kept by eq. 6 alone"
    centroid = entry.rule().statistics(v)["js_centroid"]
    assert centroid[kept & (v.draft.depth > 0)].isfinite().all()


@pytest.mark.parametrize("name", ["near_top", "relaxed_topk"])
@pytest.mark.parametrize("span", ["thinking", "released"])
def test_a_prompt_opens_a_span(name: str, span: str) -> None:
    """vLLM's state holder: inside where the last `begin` (7) stands behind the last `end` (9).
    TensorRT-LLM: wherever there is a `begin`, unless the answer's first token is an `end`."""
    texts = ["".join(digits) for digits in product("179", repeat=4)]
    rule = registry.rule(name)(span=span, begin=7, end=9)
    state = rule.start([[*map(int, text)] for text in texts], torch.device("cpu"))
    for text, inside in zip(texts, state["thinking"].tolist(), strict=True):
        opened = text.rfind("7") > text.rfind("9")
        assert inside == (opened if span == "thinking" else "7" in text and text[-1] != "9"), text


def test_the_last_marker_of_a_block_decides() -> None:
    """Of the tokens that were kept and the one behind them; without a marker all stays."""
    rule = registry.rule("relaxed_topk")(span="released", begin=7, end=9)
    tokens = (1, 7, 9)
    rows = list(product(tokens, tokens, range(3), tokens, (False, True)))
    first, second, kept, emitted, before = map(torch.tensor, zip(*rows, strict=True))
    draft = Draft.of_chain(torch.stack([0 * first, first, second], 1))
    z, u = torch.zeros(len(rows), 3, 10), torch.zeros(len(rows), 3)
    v = Verification(draft, z, WARM, u, state={"thinking": before})
    path = walk(v, Decision(torch.arange(3) <= kept[:, None]))
    inside = rule.next_state(v, path, emitted)["thinking"].tolist()
    for (*drafted, count, token, was), found in zip(rows, inside, strict=True):
        markers = [one for one in (*drafted[:count], token) if one != 1]
        assert found == (markers[-1] == 7 if markers else was), (drafted, count, token, was)
