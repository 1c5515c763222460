"""Training of judges: features, the classifier, and labels that are mined from answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from methods.decode import Limits
from methods.rules.classifiers import Classifier, Judge
from models.train.rules.classifier import features, held_out_groups, train
from models.train.rules.judge import Miner, drafted, same_answer
from tasks.base import Prompt, Score
from tests.helpers.decoding import method_on
from tests.helpers.tiny_models import language_model, prompts


def separable(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(3.0, 2.0, (n, 6))
    y = (x[:, 0] - x[:, 1] + rng.normal(0, 0.7, n) > 0).astype(int)
    return x, y, [f"p{i // 8}" for i in range(n)]


def test_the_classifier_separates_prompts_it_has_not_seen():
    x, y, groups = separable()
    found, quality = train(x, y, groups)
    assert quality["auc"] > 0.95 and quality["n_held_out"] == 40 and quality["n_train"] == 360
    assert len(found["thresholds"]) == 26 and found["thresholds"] == sorted(found["thresholds"])
    fresh, label, _ = separable(seed=1)
    file = Classifier(kind="judge", target="t", fingerprint="f", features="target", **found)
    seen: Any = SimpleNamespace(hidden=torch.tensor(fresh))
    important = Judge().with_classifier(file).important(seen)
    assert ((important > 0.5).numpy() == label).mean() > 0.88


def test_weighting_makes_the_rare_kind_count():
    x, y, groups = separable(800)
    rare = np.flatnonzero((y == 0) | (np.arange(800) % 10 == 0))
    plain, weighted = (
        train(x[rare], y[rare], [groups[i] for i in rare], weighted=w, share=0.3)[0]["thresholds"]
        for w in (False, True)
    )
    assert np.median(weighted) > np.median(plain)


def test_groups_are_never_split():
    groups = [f"p{i % 7}" for i in range(50)]
    aside = held_out_groups(groups, 0.1, 52)
    assert len(aside) == 1 and aside == held_out_groups(groups[::-1], 0.1, 52)
    assert len(held_out_groups(groups, 0.99, 52)) == 6
    assert len(held_out_groups(["p0", "p1"], 0.99, 52)) == 1
    with pytest.raises(ValueError, match="at least two are needed"):
        held_out_groups(["p0"] * 9, 0.1, 52)
    x, _, groups = separable(40)
    with pytest.raises(ValueError, match="are all important"):
        train(x, np.ones(40, dtype=int), groups)


def test_features_are_the_states_at_the_last_token():
    target, draft, ids = language_model(layers=3), language_model(layers=1), prompts(1)[0]
    found = features(target, draft, ids)
    own = [
        model.forward(torch.tensor([ids]), model.new_cache(1, 64), hidden=True).hidden[0, -1]
        for model in (draft, target)
    ]
    torch.testing.assert_close(torch.tensor(found), torch.cat(own))
    assert len(features(target, None, ids)) == len(own[1])


class LastDigits:
    """A task over token ids: the answer is how many of the emitted tokens are odd, modulo a small
    number."""

    name, metric, proportion, version, stop = "odd", "exact match", True, 1, ()

    def __init__(self, modulus):
        self.modulus = modulus

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        ids = [int(word) for word in texts[0].split()]
        return Score(1.0, str(sum(i % 2 for i in ids) % self.modulus))


def greedy_token(model, ids: list[int]) -> int:
    return int(model.model(torch.tensor([ids])).logits[0, -1].argmax())


def miner(modulus: int) -> Miner:
    target, draft = language_model(layers=3), language_model(layers=3, seed=1)
    return Miner(method_on(target), draft, LastDigits(modulus), Limits(12, frozenset()), 9)


@pytest.mark.parametrize("modulus", [1, 2, 1000])
def test_labels_say_whether_the_answer_changes(modulus):
    """The walk again, with whole forwards in place of the decode loop; nine labels at most."""
    work, before = miner(modulus), prompts(1, seed=3)[0]
    found = work(Prompt(id="x", input_ids=tuple(before)))

    def finish(start):
        text = list(start)
        while len(text) < 12:
            text.append(greedy_token(work.method.target, before + text))
        return text

    text, expected = finish([]), []
    answer = sum(i % 2 for i in text) % modulus
    for at in range(12):
        token = greedy_token(work.draft, before + text[:at])
        if token == text[at] or len(expected) == 9:
            continue
        tried = finish([*text[:at], token])
        important = int(sum(i % 2 for i in tried) % modulus != answer)
        expected.append({"ids": [*before, *text[:at], token], "important": important})
        text = text if important else tried
    assert found == expected and len(found) == 9
    kinds = {row["important"] for row in found}
    assert kinds == {0} if modulus == 1 else 1 in kinds


def test_drafted_choices_are_teacher_forced():
    draft, (before, text) = language_model(layers=1), prompts(2)
    want = [greedy_token(draft, before + text[:i]) for i in range(len(text))]
    assert drafted(draft, before, text) == want


def test_what_cannot_be_mined_is_refused():
    seven, eight = Score(0.0, "7"), Score(0.0, "8")
    assert same_answer(seven, seven) and not same_answer(seven, eight)
    work = miner(2)
    with pytest.raises(ValueError, match="x has 2 turns"):
        work(Prompt(id="x", turns=("a", "b")))
    task = LastDigits(2)
    task.proportion = False
    with pytest.raises(ValueError, match="task=odd: its answers are not right or wrong"):
        Miner(work.method, work.draft, task, work.limits, 3)
