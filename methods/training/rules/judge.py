"""Classifiers of draft tokens: features from hidden states, and the logistic regression on them.

AutoJudge (Garipov et al. 2025; garipovroma/autojudge): final-norm hidden states at the draft token's own position, of
the draft model and the target one behind the other; StandardScaler; LogisticRegression whose C is the best of a grid by
ROC-AUC on held-out prompts (a tenth, seed 52); thresholds to try are quantiles of the held-out probabilities. Judge
decoding: a linear head on the target's state alone, trained with weighted cross-entropy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from methods.engine.language_model import LanguageModel

GRID = (*(10.0 ** (-k / 2) for k in range(1, 15)), 1.0, 3.0, 10.0, 50.0, 100.0)
THRESHOLDS = 26


@dataclass(frozen=True, slots=True)
class Labelled:
    """A token in its context: `ids` end with the draft token; important = 1 means that it changes the answer."""

    group: str
    ids: list[int]
    important: int


@dataclass(frozen=True, slots=True)
class Trained:
    """A fitted classifier, and how it did on the held-out groups."""

    mean: list[float]
    scale: list[float]
    coef: list[float]
    intercept: float
    thresholds: list[float]
    c: float
    auc: float
    train: int
    held_out: int


@torch.inference_mode()
def states(model: LanguageModel, ids: Sequence[int]) -> np.ndarray:
    """[H] float32: the final-norm hidden state at the last of `ids`."""
    cache = model.new_cache(1, len(ids))
    out = model.forward(torch.tensor([list(ids)], device=model.device), cache, keep=1, hidden=True)
    return out.hidden[0, -1].float().cpu().numpy()


def features(target: LanguageModel, draft: LanguageModel | None, ids: Sequence[int]) -> np.ndarray:
    """[F]: the draft's state, where a draft is given, and the target's behind it."""
    return np.concatenate([states(model, ids) for model in (draft, target) if model is not None])


def held_out_groups(groups: Sequence[str], share: float, seed: int) -> set[str]:
    """At least one of the groups, and not all. Raises ValueError for fewer than two."""
    distinct = sorted(set(groups))
    if len(distinct) < 2:
        raise ValueError(f"labels come from {len(distinct)} prompt(s); at least two are needed, one of them held out")
    order = np.random.default_rng(seed).permutation(distinct)
    return set(order[:min(max(1, round(share * len(distinct))), len(distinct) - 1)].tolist())


def train(x: np.ndarray, y: np.ndarray, groups: Sequence[str], *, weighted: bool = False, share: float = 0.1,
          seed: int = 52, iterations: int = 100) -> Trained:
    """Fit on `x` [n, F] and `y` [n] in {0, 1}; `groups` name the prompt of each. `weighted`: classes count equally.

    Raises ValueError where a part has tokens of one kind only."""
    from sklearn.exceptions import ConvergenceWarning  # scikit-learn is slow to import
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    aside = held_out_groups(groups, share, seed)
    held = np.array([group in aside for group in groups])
    for name, part in (("training", y[~held]), ("held-out", y[held])):
        if len(set(part.tolist())) < 2:
            kind = "important" if part.any() else "unimportant"
            raise ValueError(f"the {len(part)} {name} tokens are all {kind}: label more prompts")
    scaler = StandardScaler().fit(x[~held])
    seen, unseen = scaler.transform(x[~held]), scaler.transform(x[held])
    best = None
    for c in GRID:
        model = LogisticRegression(C=c, max_iter=iterations, class_weight="balanced" if weighted else None)
        with warnings.catch_warnings():  # the code it follows stops after 100 iterations as well
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(seen, y[~held])
        auc = roc_auc_score(y[held], model.predict_proba(unseen)[:, 1])
        if best is None or auc > best[0]:
            best = (auc, c, model)
    auc, c, model = best
    thresholds = np.quantile(model.predict_proba(unseen)[:, 1], np.linspace(0, 1, THRESHOLDS))
    return Trained(scaler.mean_.tolist(), scaler.scale_.tolist(), model.coef_[0].tolist(), float(model.intercept_[0]),
                   thresholds.tolist(), c, float(auc), int((~held).sum()), int(held.sum()))
