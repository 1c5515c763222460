"""What rules are bound to: constants and how they are calibrated, classifiers, groups and counted
answers, read from files and refused in one line where they belong to other models; and rules inside
rules."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import entr

from bench.config.compose import composer
from methods import registry
from methods.drafters.base import DraftSettings
from methods.rules.arc import Arc
from methods.rules.base import DraftCapabilities
from methods.rules.classifiers import Autojudge
from methods.rules.coarse_grained import CoarseGrained
from methods.rules.combined import Either
from methods.rules.dropmatch import Dropmatch, DropoutHead
from methods.rules.placed import NearTop, RelaxedTopk, SecureSd
from methods.sampling import Sampling
from models.train.rules.bounds import BoundSample, fit, fit_buckets, measure
from models.train.rules.calibrate import Calibrate
from tests.helpers import rule_reference
from tests.helpers.rule_reference import softmax
from tests.helpers.rule_table import ARC_ONE, ARC_THREE, AT, BESIDE, TABLE, TARGET, case, classifier
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize(("constants", "vacuous"), [(ARC_ONE, False), (ARC_THREE, True)])
def test_constants_are_read_and_a_vacuous_bound_is_said_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, constants: Any, vacuous: bool
) -> None:
    file, v = tmp_path / "arc.json", case(1, Sampling(1.0), sampled=False, tree=False)
    file.write_text(constants.model_dump_json())
    with caplog.at_level(logging.WARNING):
        rule = Arc(constants=file).bind(TARGET, None)
    assert (
        ("vacuous" in caplog.text) == vacuous == bool(rule.decide(v).flags["vacuous_bound"].any())
    )
    assert torch.equal(
        rule.decide(v).accept, TABLE["arc three" if vacuous else "arc one"].rule().decide(v).accept
    )


def test_files_that_fit(tmp_path: Path) -> None:
    """A classifier of both models; overlapping groups, the rest alone."""
    file = tmp_path / "given.json"
    file.write_text(classifier("autojudge", "both").model_dump_json())
    assert Autojudge(classifier=file).bind(AT, BESIDE).needs_draft_hidden()
    file.write_text(json.dumps({"groups": [[0, 2], [2, 3]]}))
    groups = CoarseGrained(groups=file).bind(TARGET, None)._groups
    assert groups.count == 11 and groups.member.sum(1).tolist() == [1, 1, 2, *[1] * 9]


def test_groups_around_embeddings() -> None:
    embedding = torch.tensor([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0], [-1.0, 0.0]])
    target = SimpleNamespace(
        embedding=embedding, model=torch.nn.Identity(), vocab_size=5, device="cpu"
    )
    groups = CoarseGrained(similarity=0.9).bind(target, None)._groups
    assert CoarseGrained(similarity=0.9, token="keep").bind(target, None)._groups is groups, (
        "searched for once"
    )
    of_tokens = [set(row[0][row[1]].tolist()) for row in zip(groups.of, groups.member, strict=True)]
    assert of_tokens == [{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4}]
    alone = CoarseGrained(similarity=1.1).bind(target, None)._groups
    assert alone.member.sum(1).tolist() == [1] * 5
    embedding[4] = embedding[0]
    assert CoarseGrained(similarity=0.9).bind(target, None)._groups.member[4].sum() == 3, (
        "other weights, other groups"
    )


def test_a_draft_carries_the_states_behind_its_own_tokens() -> None:
    """As one forward over everything committed and drafted has them, also for the last draft token
    and ragged rows."""
    target, draft = language_model(layers=3), language_model(layers=1)
    rows = prompts(3)
    settings = DraftSettings(4, Sampling(0.0), needs_q=False, needs_hidden=True)
    proposer = registry.drafter("model")().start(target, draft, settings, rows, 64)
    for _ in range(2):
        found = proposer.propose(rows, torch.zeros(3, 4))
        for i, row in enumerate(rows):
            ids = row + found.tokens[i, 1:].tolist()
            whole = draft.forward(torch.tensor([ids]), draft.new_cache(1, 64), hidden=True)
            states = whole.hidden[0, len(row) - 1 :]
            torch.testing.assert_close(found.hidden[i], states, atol=1e-4, rtol=1e-4)
        rows = [[*row, *found.tokens[i, 1 : 3 + i].tolist(), 7] for i, row in enumerate(rows)]
    assert len({len(row) for row in rows}) > 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Either(first={"name": "mars", "thta": 1}), "mars: thta: Extra inputs"),
        (lambda: SecureSd(relaxed={"name": "fly"}), "name=fly cannot be combined"),
        (
            lambda: SecureSd(relaxed={"name": "ensemble", "w_first": 1.0}),
            "name=ensemble cannot be combined",
        ),
        (lambda: NearTop(protected=(12,)).bind(TARGET, None), "rule.protected"),
        (
            lambda: RelaxedTopk(span="thinking", begin=5, end=12).bind(TARGET, None),
            "vocabulary has 12 entries",
        ),
    ],
)
def test_options_that_do_not_fit(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_randomness_of_a_rules_own_is_said() -> None:
    without = Dropmatch(p_drop=0.0), DropoutHead(p_drop=0.0)
    having = Dropmatch(), Dropmatch(p_drop=0.0, selection="nucleus")
    assert [rule.has_own_randomness() for rule in (*without, *having)] == [False] * 2 + [True] * 2


def test_a_rule_needs_what_the_rules_inside_need() -> None:
    plain = {"name": "random"}
    for first, second in ((plain, {"name": "dropmatch"}), ({"name": "dropmatch"}, plain)):
        inside = Either(first=first, second=second)
        assert inside.needs_hidden() and inside.needs_q(Sampling(0.0))
    assert not Either(first=plain, second=plain).needs_hidden()
    with pytest.raises(ValueError, match="rule=lossy is defined for tokens drawn"):
        SecureSd(relaxed={"name": "lossy"}).check(
            DraftCapabilities("eagle3", True, sampled=False), Sampling(1.0)
        )


@pytest.mark.parametrize("alternative", ["runner_up", "uniform"])
def test_a_position_is_measured_as_by_whole_forwards(alternative: str) -> None:
    """Every number again from forwards of the whole text with one token replaced, without a cache,
    in float64."""
    target, (context, answer) = language_model(layers=3), prompts(2, low=8, high=12)
    found = measure(
        target,
        context,
        answer,
        Sampling(0.8, top_k=20),
        count=99,
        top=10,
        alternative=alternative,
        rng=np.random.default_rng(0),
    )
    assert len(found) == len(answer)
    embedding = target.embedding.double().numpy()
    white = 1 / embedding.std(0, ddof=1)

    def logits(ids: list[int]) -> np.ndarray:
        return target.model(torch.tensor([ids])).logits[0, -1].double().detach().numpy()

    for position, at in zip(found, reversed(range(len(answer))), strict=True):
        before = context + answer[:at]
        z = logits(before)
        order = np.argsort(-z)
        best, kept = order[0], order[:20]
        p = np.zeros(len(z))
        p[kept] = softmax(z[kept] / 0.8)
        others = order[1:2] if alternative == "runner_up" else order[1:10]
        distance = {
            other: np.sum((white * (embedding[other] - embedding[best])) ** 2) for other in others
        }
        other = min(distance, key=lambda token: abs(distance[token] - position.embedding_distance))
        assert position.embedding_distance == pytest.approx(distance[other], rel=1e-4), (
            "an allowed alternative"
        )
        q, r = (logits([*before, token]) for token in (best, other))
        union = sorted({*np.argsort(-q)[:10], *np.argsort(-r)[:10]})
        expected = rule_reference.distance("js", softmax(q[union]), softmax(r[union]))
        assert position.js == pytest.approx(expected, abs=1e-5)
        assert position.margin == pytest.approx(np.log(p[best] / p[other]) ** 2, rel=1e-3)
        assert position.entropy == pytest.approx(entr(p).sum() / np.log(len(z)), abs=1e-5)


def random_positions(n: int, seed: int = 0) -> list[BoundSample]:
    rng = np.random.default_rng(seed)
    distance, margin, entropy = rng.exponential(50, n), rng.exponential(4, n), rng.uniform(0, 1, n)
    js = np.minimum(0.002 * distance * rng.exponential(1, n) * (0.5 + entropy), np.log(2))
    rows = zip(js.tolist(), distance.tolist(), margin.tolist(), entropy.tolist(), strict=True)
    return [BoundSample(*row) for row in rows]


def test_constants_are_the_quantiles_of_algorithm_1() -> None:
    positions, delta = random_positions(400), 0.05
    js, distance, margin = np.array([[p.js, p.embedding_distance, p.margin] for p in positions]).T
    found = fit(positions, delta=delta)
    c, a = np.quantile(js / distance, 0.95), np.quantile(js / margin, 0.95)
    assert (found.c, found.alpha_kappa) == (pytest.approx(c), pytest.approx(a))
    assert found.tau == pytest.approx(np.quantile(np.minimum(c * distance, a * margin), 0.95))
    # each bound alone covers; the smaller of both need not
    assert np.mean(js <= found.c * distance) >= 0.95
    released = fit(positions, delta=delta, trim=0.005, slack=0.7)
    assert released.c == pytest.approx(np.quantile(np.sort(js / distance)[:398], 0.95))
    assert released.tau > found.tau


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (
            ["pair=llama31_8b"],
            "task=mini_instruct: the paper calibrates pair=llama31_8b on oasst1; give task=oasst1",
        ),
        (["pair=llama31_8b", "task=oasst1"], ""),
        ([], ""),
    ],
)
def test_the_papers_pairs_are_calibrated_on_its_corpus(given: list[str], refused: str) -> None:
    with composer(name="calibrate") as hydra:
        config = hydra.point([*given, "engine.device=cpu"]).config
    if refused:
        with pytest.raises(ValueError, match=refused):
            Calibrate.from_config(config)
    else:
        assert Calibrate.from_config(config).alternative == "uniform"


def test_buckets_are_fitted_by_themselves() -> None:
    positions = random_positions(600)
    edges, buckets = fit_buckets(positions, 3, delta=0.05)
    assert [b.n for b in buckets] == [200, 200, 200] and edges == sorted(edges)
    low = [p for p in positions if p.entropy <= edges[0]]
    assert buckets[0] == fit(low, delta=0.05)
    assert buckets[0].c < buckets[2].c  # where it matters more, the scale is larger
    assert fit_buckets(positions, 1, delta=0.05) == ([], [fit(positions, delta=0.05)])
    same = [BoundSample(p.js, p.embedding_distance, p.margin, 0.5) for p in positions]
    with pytest.raises(ValueError, match="too many entropies are equal"):
        fit_buckets(same, 2, delta=0.05)
