"""The law of a rule against draws and definitions; no rule keeps more tokens for its divergence
than `tilted`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import entr, logsumexp, rel_entr, softmax

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request
from methods.distortion import POWERS, compared, keep_probability, sampled_law, tree_law
from methods.likelihood import generate_with_nll
from methods.method import build_method
from methods.rules.base import Rule
from methods.rules.coarse_grained import CoarseGrained
from methods.rules.lossless import Lossless, Random
from methods.rules.mars import Mars
from methods.rules.verification import Verification
from methods.rules.walk import Decision, walk
from methods.rules.whole import Typical, tilted
from methods.sampling import Sampling
from methods.trees.draft import Draft
from results.metrics.distortion import INVERSE
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_table import coarse, with_states
from tests.helpers.tiny_heads import model_for, small
from tests.helpers.tiny_models import VOCAB as VOCABULARY
from tests.helpers.tiny_models import language_model, prompts

VOCAB, DRAWS = 6, 1_000_000
RULES = [
    Lossless(),
    Mars(variant="sampling", theta=0.5),
    Mars(),
    Random(rate=0.3),
    Typical(epsilon=0.2, delta=0.8),
]


def star(seed: int, sampled: bool, sampling: Sampling, rows: int = 1) -> Verification:
    """One context with three candidates (one, drawn from q, where `sampled`), the same in each
    row."""
    random, nodes = torch.Generator().manual_seed(seed), 2 if sampled else 4
    logits, draft_logits = (torch.randn(2, 1, 1, VOCAB, generator=random) * 2).expand(
        -1, rows, nodes, -1
    )
    u = torch.rand(rows, nodes, generator=random)
    if sampled:
        q = sampling.probs(draft_logits[:, 0])
        tokens = torch.nn.functional.pad(torch.multinomial(q, 1, generator=random), (1, 0))
        q = q.gather(1, tokens)
        draft = Draft.of_chain(tokens, sampled=True, logits=draft_logits, q=q)
    else:
        tokens, parents = torch.tensor([[[0, 4, 1, 3]], [[-1, 0, 0, 0]]]).expand(2, rows, nodes)
        draft = Draft.of_parents(tokens, parents, logits=draft_logits)
    return Verification(draft, logits, sampling, u)


def law_of(rule: Rule, v: Verification) -> torch.Tensor:
    """[V] of the root's token."""
    at = torch.zeros(1, dtype=torch.long)
    if v.draft.sampled:
        return sampled_law(rule, v, at, at)[0]
    kept = keep_probability(rule, v)
    earlier = torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    return tree_law(rule, v, at, at, kept * earlier)[0]


def first_tokens(rule: Rule, v: Verification) -> torch.Tensor:
    """[V] shares of the first token behind the root, over the rows, one draw each."""
    path, rows = walk(v, rule.decide(v)), len(v.u)
    numbers = torch.rand(rows, generator=torch.Generator().manual_seed(8))
    kept = v.draft.tokens.gather(1, path.last[:, None])[:, 0]
    first = torch.where(path.length > 0, kept, rule.next_token(v, path.last, numbers))
    return torch.bincount(first, minlength=VOCAB).double() / rows


@pytest.mark.parametrize("sampled", [False, True], ids=["tree", "chain"])
@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule.name}-{rule.model_dump().get('variant', '')}"
)
def test_law_is_that_of_a_million_draws(rule: Rule, sampled: bool) -> None:
    """The first token behind the root, drawn a million times through `decide`, `walk` and
    `next_token`."""
    sampling = Sampling(temperature=0.8)
    law = law_of(rule, star(3, sampled, sampling))
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    shares = first_tokens(rule, star(3, sampled, sampling, DRAWS))
    error = (law * (1 - law) / DRAWS).sqrt()
    assert ((shares - law).abs() <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("sampled", [False, True], ids=["tree", "chain"])
@pytest.mark.parametrize(
    "groups", [[[0, 2], [1, 4], [3, 5]], [[0, 1], [1, 2, 3], [3, 4, 5], [4]]], ids=str
)
def test_groups_of_tokens(groups: list[list[int]], sampled: bool) -> None:
    """Redrawn, the token has the target's law whatever the groups; kept, its group has the target's
    where groups are disjoint."""
    v = star(1, sampled, Sampling(1.0), 100_000)
    redrawn, kept = (
        first_tokens(coarse(CoarseGrained(token=token), groups, VOCAB), v) - v.p[0, 0].double()
        for token in ("redraw", "keep")
    )
    assert redrawn.abs().max() < 0.008 and kept.abs().sum() > 0.04
    assert sum(map(len, groups)) > VOCAB or all(abs(kept[group].sum()) < 0.008 for group in groups)


def test_numbers_are_those_of_the_definitions() -> None:
    """KL, TV, JS, mass outside, entropy, mean logit, TV at temperature 1 and logsumexp, each by its
    sum over the vocabulary."""
    z, law = np.array([1.0, 0.5, -0.3, -2.0]), np.array([0.1, 0.6, 0.3, 0.0])
    tensors = torch.tensor(z[None]).float(), torch.tensor(law[None])
    logit = law @ z

    def numbers(p: np.ndarray) -> list[float]:
        middle = (law + p) / 2
        js = (rel_entr(law, middle) + rel_entr(p, middle)).sum() / 2
        outside = law[p == 0].sum()
        return [rel_entr(law, p).sum(), abs(law - p).sum() / 2, js, outside, entr(law).sum(), logit]

    for sampling, p in (
        (Sampling(temperature=0.7), softmax(z / 0.7)),
        (Sampling(temperature=0.7, top_k=2), np.append(softmax(z[:2] / 0.7), [0.0, 0.0])),
    ):
        found = compared(*tensors, sampling)[0].tolist()
        assert found[:6] == pytest.approx(numbers(p), rel=1e-6)
        assert found[6] == pytest.approx(abs(law - softmax(z)).sum() / 2, rel=1e-6)
        assert found[7:] == pytest.approx([logsumexp(z * n / 4) for n in POWERS], rel=1e-6)
    greedy = compared(*tensors, Sampling(0.0))[0].tolist()
    assert greedy[:4] == pytest.approx([1.0 - logit, *numbers(np.eye(4)[0])[1:4]], rel=1e-6)


def test_store_and_loop_know_the_same_temperatures() -> None:
    assert [n / 4 for n in POWERS] == INVERSE.tolist()


def decoded(
    rule: str, drafter: str, sampling: Sampling, batch: int = 6, **options: Any
) -> list[Generation]:
    """Answers of an untrained target, with their divergences; the draft model is a noisy copy of
    it."""
    target = language_model(layers=3)
    method = build_method(
        target,
        model_for(drafter, target),
        small(drafter),
        registry.rule(rule)(**options),
        sampling,
        4,
    )
    requests = [Request(ids, f"0/law/{i}") for i, ids in enumerate(prompts(6) * 4)]
    limits, out = Limits(40, frozenset(range(0, VOCABULARY, 16)), laws=True, shrink=True), []
    for at in range(0, len(requests), batch):
        out += generate_with_nll(method, requests[at : at + batch], limits)
    return out


@pytest.mark.parametrize(
    "sampling", [Sampling(0.6), Sampling(1.0), Sampling(0.9, top_k=20), Sampling(0.0)], ids=str
)
@pytest.mark.parametrize(
    ("rule", "drafter"),
    [("lossless", "model"), ("lossless", "eagle3"), ("lossless", "none"), ("block", "model")],
)
def test_lossless_decoding_has_no_distortion(rule: str, drafter: str, sampling: Sampling) -> None:
    for one in decoded(rule, drafter, sampling):
        found = one.divergence
        assert found is not None and found.tokens == len(one.output_ids)
        assert found.nats < 1e-6 and found.tv < 1e-4 and found.outside == 0
        assert found.basis == ("theorem" if rule == "block" else "law")


@pytest.mark.parametrize(
    ("rule", "drafter", "options"),
    [
        ("mars", "model", {"variant": "sampling", "theta": 0.5}),
        ("random", "eagle3", {"rate": 0.5}),
        ("cactus", "model", {}),
        ("tilted", "model", {"lam": 0.3}),
    ],
)
def test_emitted_tokens_are_as_likely_as_the_law_says(
    rule: str, drafter: str, options: dict[str, Any]
) -> None:
    """The mean of −log p(token) minus its expectation under R is 0 within 4 standard errors;
    batches change nothing."""
    found = decoded(rule, drafter, Sampling(1.0), **options)
    at_one = POWERS.index(4)
    excess = torch.tensor(
        [one.nll - (one.divergence.log_mass[at_one] - one.divergence.logit) for one in found]
    )
    assert abs(excess.mean()) < 4 * excess.std() / len(excess) ** 0.5
    assert sum(one.divergence.nats for one in found) > 0.01
    alone = decoded(rule, drafter, Sampling(1.0), batch=1, **options)
    for one, other in zip(found, alone, strict=True):
        assert one.divergence.nats == pytest.approx(other.divergence.nats, abs=1e-4)


def test_a_rule_with_randomness_of_its_own_is_averaged_and_one_that_hides_it_has_no_value() -> None:
    class Hidden(Random):
        """Reads another node's number."""

        def decide(self, v: Verification) -> Decision:
            return Decision(v.u.roll(1, 1) < self.rate)

    class Declared(Hidden):
        def has_own_randomness(self) -> bool:
            return True

    target = language_model(layers=3)
    drafter, head = small("eagle3"), model_for("eagle3", target)
    for kind, basis in ((Random, "law"), (Hidden, None), (Declared, "draws")):
        method = build_method(target, head, drafter, kind(rate=0.5), Sampling(1.0), 4)
        requests = [Request(ids, f"0/own/{i}") for i, ids in enumerate(prompts(6))]
        found = generate_with_nll(method, requests, Limits(24, frozenset(), laws=True))
        assert [one.divergence and one.divergence.basis for one in found] == [basis] * 6


WARM, PRICES = Sampling(1.0), (0.1, 0.3, 1.0, 3.0)
RULES_LIMIT = [
    ("lossless", {}),
    ("lossless", {"q_mode": "draft"}),
    ("mars", {}),
    ("random", {"rate": 0.3}),
    ("mars", {"variant": "sampling", "theta": 0.5}),
    ("typical", {}),
    ("fsd", {"threshold": 0.3}),
    ("threshold", {"single": 0.3}),
    *(("tilted", {"lam": lam}) for lam in PRICES),
]
DRAWN = [*RULES_LIMIT, ("cactus", {}), ("lossy", {}), ("cascade_tok", {}), ("ensemble", {"w": 0.5})]


def of_tree(rule: Rule, v: Verification) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row: expected tokens kept, and expected divergence over the contexts that are
    visited."""
    kept = keep_probability(rule, v) * (v.draft.valid & (v.draft.depth > 0))
    first = kept * torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    visited = torch.where(v.draft.depth == 0, 1.0, 0.0).double()
    for node in range(1, v.draft.nodes):
        visited[:, node] = visited.gather(1, v.parent[:, node : node + 1])[:, 0] * first[:, node]
    rows, nodes = v.draft.valid.nonzero(as_tuple=True)
    nats = torch.zeros_like(visited)
    nats[rows, nodes] = compared(
        v.logits[rows, nodes], tree_law(rule, v, rows, nodes, first), v.sampling
    )[:, 0]
    return visited[:, 1:].sum(1), (visited * nats).sum(1)


def best(v: Verification, row: int, lam: float, node: int = 0) -> float:
    """The value of a context by the soft dynamic programme."""
    parents = v.draft.parents.expand(v.draft.tokens.shape)[row].tolist()
    p = v.logits[row, node].double().softmax(-1).numpy()
    children = [
        i for i, parent in enumerate(parents) if i and parent == node and v.draft.valid[row, i]
    ]
    weights = p.copy()
    for child in children:
        weights[int(v.draft.tokens[row, child])] *= math.exp((1 + best(v, row, lam, child)) / lam)
    return lam * math.log(weights.sum())


@pytest.mark.parametrize("lam", PRICES)
def test_no_rule_lies_above_the_limit_on_the_same_trees(lam: float) -> None:
    """E[kept] − λ E[sum of KL] of every rule is at most the programme's value, which `tilted` at
    that λ attains."""
    v = with_states(random_case(5, WARM, sampled=False, tree=True))
    limit = torch.tensor([best(v, row, lam) for row in range(len(v.u))], dtype=torch.float64)
    for name, options in RULES_LIMIT:
        kept, nats = of_tree(registry.rule(name)(**options), v)
        assert (kept - lam * nats <= limit + 1e-5).all(), name
        if options.get("lam") == lam:
            assert torch.allclose(kept - lam * nats, limit, atol=1e-5)


@pytest.mark.parametrize("lam", PRICES)
def test_no_rule_lies_above_the_limit_on_drawn_tokens(lam: float) -> None:
    v = with_states(random_case(6, WARM, sampled=True, tree=False, nodes=4))
    rows, nodes = (v.draft.valid & (torch.arange(v.draft.nodes) < v.drafted[:, None])).nonzero(
        as_tuple=True
    )
    p, q = v.p[rows, nodes].double(), v.q[rows, nodes].double()

    def value(law: torch.Tensor) -> torch.Tensor:
        """Of [M, V]: no test keeps more than min(q, R) of the mass."""
        return torch.minimum(q, law).sum(-1) - lam * (torch.xlogy(law, law) - law * p.log()).sum(-1)

    limit = value(tilted(p, q, lam))
    for name, options in DRAWN:
        rule = registry.rule(name)(**options)
        law = sampled_law(rule, v, rows, nodes)
        if rule.drawn_law(v.p[0], v.q[0]) is not None:  # what it states is what it does
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(rule), "drawn_law", Rule.drawn_law)
                assert torch.allclose(law, sampled_law(rule, v, rows, nodes), atol=1e-5)
        assert (value(law) <= limit + 1e-6).all(), name
        if options.get("lam") == lam:
            assert torch.allclose(law, tilted(p, q, lam), atol=1e-5)


def test_its_ends_are_lossless_and_the_longest_path() -> None:
    v = with_states(random_case(5, WARM, sampled=False, tree=True))
    lossless, _ = of_tree(registry.rule("lossless")(), v)
    kept, nats = of_tree(registry.rule("tilted")(lam=1e5), v)
    assert torch.allclose(kept, lossless, atol=1e-3) and (nats < 1e-6).all()
    kept, _ = of_tree(registry.rule("tilted")(lam=0.01), v)
    assert torch.allclose(kept, (v.draft.depth * v.draft.valid).amax(1).double(), atol=1e-3)
    logits = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0)).double()
    p, q = logits.softmax(-1)
    assert torch.allclose(tilted(p, q, 1e5), p, atol=1e-4)
    assert torch.allclose(tilted(p, q, 0.01), q, atol=1e-9)
