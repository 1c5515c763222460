"""AutoJudge, Judge and two rules at once: at their ends, and the hidden states they read."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters.base import DraftSettings
from methods.method import build_method
from methods.rules._classifier import Classifier, Linear
from methods.rules.argmax_only import ArgmaxOnly
from methods.rules.autojudge import Autojudge
from methods.rules.either import Either
from methods.rules.greedy import Greedy
from methods.rules.judge import Judge
from methods.rules.lossless import Lossless
from methods.rules.verification import Verification
from methods.rules.walk import walk
from methods.sampling import Sampling
from tests.helpers import rule_reference
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_pairs import classifier, random_states
from tests.helpers.tiny_models import language_model, prompts

SETTINGS = [Sampling(0.0), Sampling(1.0), Sampling(0.7, top_k=6, top_p=0.9)]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_ends(sampling: Sampling) -> None:
    """AutoJudge with threshold 0 is greedy, Judge with threshold 1 lossless."""
    strict = Autojudge(threshold=0.0).with_classifier(Linear.of(classifier("autojudge", "both"), "cpu"))
    certain = Judge(threshold=1.0).with_classifier(Linear.of(classifier("judge", "target"), "cpu"))
    for seed, tree in itertools.product(range(3), (False, True)):
        v = random_states(random_case(seed, sampling, sampled=False, tree=tree))
        cold = Verification(v.draft, v.logits, Sampling(0.0), v.u)
        for rule, expected, seen in ((strict, Greedy(), cold), (certain, Lossless(), v)):
            found, wanted = walk(v, rule.decide(v)), walk(v, expected.decide(seen))
            assert torch.equal(found.kept, wanted.kept)
            torch.testing.assert_close(rule.emit(v, found.last), expected.emit(seen, wanted.last))


@pytest.mark.parametrize("sampling", SETTINGS[:2], ids=str)
def test_either_keeps_what_one_of_both_keeps(sampling: Sampling) -> None:
    """Child by child: the first that the first or the second rule would accept; emission of the first."""
    judged = Judge().with_classifier(Linear.of(classifier("judge", "target"), "cpu"))
    both = Either(first={"name": "random", "rate": 0.3}, second={"name": "mars", "theta": 0.5})
    first, second = both._rules
    more = 0
    for seed, tree in itertools.product(range(5), (False, True)):
        v = random_states(random_case(seed, sampling, sampled=False, tree=tree))
        kept = walk(v, both.decide(v))
        alone = [rule.decide(v).accept for rule in (first, second)]
        for row in range(len(v.u)):
            def local(context, children, row=row, alone=alone):
                found = next((c for c in children if alone[0][row, c.node] or alone[1][row, c.node]), None)
                return found, context.p
            path, expected, _ = rule_reference.walk(rule_reference.contexts(v, row), local)
            assert kept.kept[row].nonzero().flatten().tolist() == path
            weights = both.emit(v, kept.last)[row].double().numpy()
            np.testing.assert_allclose(weights / weights.sum(), expected, atol=2e-6)
        more += int((kept.length > torch.maximum(*(walk(v, r.decide(v)).length for r in (first, second)))).sum())
    assert more > 0, "together they go further than each alone"
    assert not both.needs_hidden and Either(second={"name": "dropmatch"}).needs_hidden and judged.needs_hidden


@pytest.mark.parametrize("sampling", SETTINGS[:2], ids=str)
def test_argmax_only_keeps_what_the_lossless_test_or_the_argmax_keeps(sampling: Sampling) -> None:
    """Child by child: the first that the rule accepts and that the lossless test accepts too or that is the argmax."""
    only, argmax, less = ArgmaxOnly(of={"name": "random", "rate": 0.7}), 0, 0
    for seed, tree in itertools.product(range(5), (False, True)):
        v = random_states(random_case(seed, sampling, sampled=False, tree=tree))
        kept = walk(v, only.decide(v))
        for row in range(len(v.u)):
            def local(context, children):
                for i, child in enumerate(children):
                    strict = rule_reference.strict_accepts(context, children[:i], child)
                    if child.u < 0.7 and (strict or child.token == context.z.argmax()):
                        return child, context.p
                return None, context.p
            path, expected, (relaxed, greedier) = rule_reference.walk(rule_reference.contexts(v, row), local)
            assert kept.kept[row].nonzero().flatten().tolist() == path and relaxed == 0
            weights = only.emit(v, kept.last)[row].double().numpy()
            np.testing.assert_allclose(weights / weights.sum(), expected, atol=2e-6)
            argmax += greedier
        assert not kept.relaxed.any()
        less += int((only.decide(v).accept != only._rules[0].decide(v).accept).sum())
    assert less > 0 and (argmax > 0) == (not sampling.greedy)
    with pytest.raises(ValueError, match="name=either cannot be combined"):
        ArgmaxOnly(of={"name": "either"})


def test_either_refuses_other_names_and_options() -> None:
    for options, message in [({"name": "nothing"}, "name=nothing cannot be combined; give one of: arc, "),
                             ({}, "name=None cannot be"), ({"name": "either"}, "name=either cannot be"),
                             ({"name": "mars", "thta": 1}, "mars: thta: Extra inputs")]:
        with pytest.raises(ValueError, match=message):
            Either(first=options)


def test_classifiers_of_other_models_are_refused(tmp_path: Path) -> None:
    file, device = tmp_path / "classifier.json", "cpu"
    file.write_text(classifier("autojudge", "both").model_dump_json())
    target, draft = (SimpleNamespace(source=s, fingerprint=f, device=device) for s, f in (("t", "abc"), ("d", "def")))
    assert Autojudge(classifier=file).bind(target, draft).needs_draft_hidden
    for given, message in [((draft, draft), r"trained with the target t \(abc\), and the target here is d"),
                           ((target, target), r"trained with the draft d \(def\), and the draft here is t"),
                           ((target, None), "and the draft here is none")]:
        with pytest.raises(ValueError, match=message):
            Autojudge(classifier=file).bind(*given)
    with pytest.raises(ValueError, match="a classifier for rule=autojudge, not rule=judge"):
        Judge(classifier=file).bind(target, draft)
    file.write_text(classifier("judge", "target").model_copy(update={"mean": [0.0]}).model_dump_json())
    with pytest.raises(ValueError, match="mean, scale and coef have 1, 7 and 7 entries"):
        Judge(classifier=file).bind(target, None)


def test_a_draft_carries_the_states_behind_its_own_tokens() -> None:
    """As one forward over everything committed and drafted has them, also for the last draft token and ragged rows."""
    target, draft = language_model(layers=3), language_model(layers=1)
    rows = prompts(3)
    settings = DraftSettings(4, Sampling(0.0), needs_q=False, needs_hidden=True)
    proposer = registry.drafter("model")().start(target, draft, settings, rows, 64)
    for _ in range(2):
        found = proposer.propose(rows, torch.zeros(3, 4))
        for i, row in enumerate(rows):
            ids = row + found.tokens[i, 1:].tolist()
            states = draft.forward(torch.tensor([ids]), draft.new_cache(1, 64), hidden=True).hidden[0]
            torch.testing.assert_close(found.hidden[i], states[len(row) - 1:], atol=1e-4, rtol=1e-4)
        rows = [[*row, *found.tokens[i, 1:3 + i].tolist(), 7] for i, row in enumerate(rows)]
    assert len({len(row) for row in rows}) > 1


def test_autojudge_at_threshold_zero_decodes_greedily(tmp_path: Path) -> None:
    target, draft = language_model(layers=3), language_model(layers=1)
    size = 2 * target.embedding.shape[1]
    file = tmp_path / "classifier.json"
    file.write_text(Classifier(
        kind="autojudge", target="t", fingerprint=target.fingerprint, draft="d", draft_fingerprint=draft.fingerprint,
        features="both", mean=[0.0] * size, scale=[1.0] * size, coef=[0.0] * size, intercept=-2.0).model_dump_json())
    rows, texts = prompts(4), {}
    for threshold in (0.0, 1.0):
        rule = Autojudge(classifier=file, threshold=threshold)
        method = build_method(target, draft, registry.drafter("model")(), rule, Sampling(0.0), 4)
        texts[threshold] = generate(method, [Request(ids, "x") for ids in rows], Limits(20, frozenset()))
    plain = build_method(target, None, registry.drafter("none")(), Greedy(), Sampling(0.0), 1)
    expected = generate(plain, [Request(ids, "x") for ids in rows], Limits(20, frozenset()))
    assert [g.output_ids for g in texts[0.0]] == [g.output_ids for g in expected]
    assert all(set(g.accepted[:-1]) == {4} and g.relaxed > 0 for g in texts[1.0])  # everything is harmless there
