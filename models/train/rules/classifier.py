"""Classifiers of draft tokens: features from hidden states, and logistic regression on them.

AutoJudge (Garipov et al. 2025; garipovroma/autojudge): final-norm hidden states of the draft and of
the target at the draft token's own position, concatenated; StandardScaler; LogisticRegression with
the C of a grid that has the best ROC-AUC on held-out prompts (a tenth, seed 52); candidate
thresholds are quantiles of the held-out probabilities. Judge decoding: a linear head on the
target's state alone, trained with weighted cross-entropy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from methods.engine.language_model import LanguageModel

GRID = (*(10.0 ** (-k / 2) for k in range(1, 15)), 1.0, 3.0, 10.0, 50.0, 100.0)
THRESHOLDS = 26


@dataclass(frozen=True, slots=True)
class Labelled:
    """A labelled draft token.

    group      id of its prompt.
    ids        its context, the draft token last.
    important  1 where it changes the final answer, else 0.
    """

    group: str
    ids: list[int]
    important: int


@torch.inference_mode()
def states(model: LanguageModel, ids: Sequence[int]) -> np.ndarray:
    """[H] float32: the final-norm hidden state at the last of `ids`."""
    cache = model.new_cache(1, len(ids))
    hidden = model.forward(
        torch.tensor([list(ids)], device=model.device), cache, keep=1, hidden=True
    ).hidden
    assert hidden is not None, "asked for"
    state: np.ndarray = hidden[0, -1].float().cpu().numpy()
    return state


def features(target: LanguageModel, draft: LanguageModel | None, ids: Sequence[int]) -> np.ndarray:
    """[F]: the draft's state, if a draft is given, followed by the target's."""
    return np.concatenate([states(model, ids) for model in (draft, target) if model is not None])


def held_out_groups(groups: Sequence[str], share: float, seed: int) -> set[str]:
    """A `share` of the groups, at least one and not all. Raises ValueError for fewer than two."""
    distinct = sorted(set(groups))
    if len(distinct) < 2:
        raise ValueError(
            f"labels come from {len(distinct)} prompt(s); at least two are needed, one is held out"
        )
    order = np.random.default_rng(seed).permutation(distinct)
    return set(order[: min(max(1, round(share * len(distinct))), len(distinct) - 1)].tolist())


def train(
    x: np.ndarray,
    y: np.ndarray,
    groups: Sequence[str],
    *,
    weighted: bool = False,
    share: float = 0.1,
    seed: int = 52,
    iterations: int = 100,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit on `x` [n, F] and `y` [n] in {0, 1}; `groups` [n] are the prompts. `weighted`: balance
    the classes. Returns the `Classifier`'s numbers, and c, the ROC-AUC on held-out groups and the
    numbers of tokens.

    Raises ValueError where the training or the held-out part has tokens of one class only."""
    from sklearn.exceptions import ConvergenceWarning  # scikit-learn is slow to import
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.preprocessing import StandardScaler

    held_groups = held_out_groups(groups, share, seed)
    is_held_out = np.array([group in held_groups for group in groups])
    for name, part in (("training", y[~is_held_out]), ("held-out", y[is_held_out])):
        if len(set(part.tolist())) < 2:
            kind = "important" if part.any() else "unimportant"
            raise ValueError(f"the {len(part)} {name} tokens are all {kind}: label more prompts")
    scaler = StandardScaler().fit(x[~is_held_out])
    train_x, held_x = scaler.transform(x[~is_held_out]), scaler.transform(x[is_held_out])
    fits = []
    for c in GRID:
        model = LogisticRegression(
            C=c, max_iter=iterations, class_weight="balanced" if weighted else None
        )
        with warnings.catch_warnings():  # the released code stops after 100 iterations as well
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train_x, y[~is_held_out])
        fits.append((roc_auc_score(y[is_held_out], model.predict_proba(held_x)[:, 1]), c, model))
    auc, c, model = max(fits, key=lambda fit: fit[0])  # the first of equals
    thresholds = np.quantile(model.predict_proba(held_x)[:, 1], np.linspace(0, 1, THRESHOLDS))
    return (
        {
            "mean": scaler.mean_.tolist(),
            "scale": scaler.scale_.tolist(),
            "coef": model.coef_[0].tolist(),
            "intercept": float(model.intercept_[0]),
            "thresholds": thresholds.tolist(),
        },
        {
            "c": c,
            "auc": float(auc),
            "n_train": int((~is_held_out).sum()),
            "n_held_out": int(is_held_out.sum()),
        },
    )
