"""Every rule beside its slow float64 version, in many settings: the table that the laws of rules go
through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml

from methods import registry
from methods.rules._files import FileMissing
from methods.rules.arc import Bucket, Constants
from methods.rules.base import DraftCapabilities, Rule
from methods.rules.classifiers import Classifier
from methods.rules.coarse_grained import Groups
from methods.rules.verification import Verification
from methods.sampling import Sampling
from tests.helpers import local_reference, path_reference, relaxed_reference, rule_reference
from tests.helpers.rule_cases import random_case
from tests.helpers.rule_reference import Expected, Tree

VOCAB, HIDDEN, DRAFT_HIDDEN = 12, 20, 5
EMBEDDING = torch.randn(VOCAB, 6, generator=torch.Generator().manual_seed(0))
WEIGHT = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(0)) / 4
TARGET: Any = SimpleNamespace(
    head=lambda h: h @ WEIGHT.T,
    embedding=EMBEDDING,
    fingerprint="abc",
    source="test",
    vocab_size=VOCAB,
    device="cpu",
)
AT, BESIDE = (
    SimpleNamespace(source=source, fingerprint=digits, device="cpu")
    for source, digits in (("t", "abc"), ("d", "def"))
)
"""The models that a classifier is made for, by their names."""
ARC_ONE = Constants(
    target="test",
    fingerprint="abc",
    inv_std=(1 / EMBEDDING.std(0)).tolist(),
    buckets=[Bucket(c=0.02, alpha_kappa=0.1, tau=0.5, n=100)],
)
ARC_THREE = ARC_ONE.model_copy(
    update={
        "edges": [0.3, 0.6],
        "buckets": [
            Bucket(c=0.01, alpha_kappa=0.05, tau=0.2, n=50),
            *ARC_ONE.buckets,
            Bucket(c=0.05, alpha_kappa=0.3, tau=0.9, n=50),
        ],
    }
)
SINGLETONS = [[v] for v in range(VOCAB)]
OVERLAPPING = [[0, 1, 2], [2, 3, 4], [0, 4, 5, 6], [6, 7], [7, 8, 9, 10, 11], [2, 11], [9]]


def classifier(kind: str, features: str) -> Classifier:
    """Random weights over the states of the target alone or of `both` models."""
    rng = np.random.default_rng(0)
    size = HIDDEN + (DRAFT_HIDDEN if features == "both" else 0)
    return Classifier(
        kind=kind,
        target="t",
        fingerprint="abc",
        draft="d",
        draft_fingerprint="def",
        features=features,
        mean=rng.normal(size=size).tolist(),
        scale=rng.uniform(0.5, 2, size).tolist(),
        coef=rng.normal(size=size).tolist(),
        intercept=0.3,
    )


def rows_of_the_page() -> dict[str, str]:
    """Rule -> source, of the rows of docs/rules.md."""
    page = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[-1] for row in cells}


BY_LAW = ("block", "traversal")
"""Rules whose oracle is the law of what they emit (test_lossless_exact.py): they have no slow
version."""
SHIPPED = {name for name, source in rows_of_the_page().items() if source != "my own"}


def coarse(rule: Rule, groups: list[list[int]], vocab: int = VOCAB) -> Rule:
    """The coarse-grained rule with these groups, as if read from a file."""
    bound = rule.model_copy()
    bound._groups = Groups.from_lists(groups, vocab)
    return bound


GIVEN: dict[str, Callable[..., Rule]] = {
    "arc": lambda rule, constants, embedding: rule.with_constants(constants, EMBEDDING),
    "dropmatch": lambda rule, weight: rule.bind(TARGET, None),
    "dropout_head": lambda rule, weight: rule.bind(TARGET, None),
    "coarse_grained": coarse,
    "autojudge": lambda rule, weights: rule.with_classifier(weights),
    "judge": lambda rule, weights: rule.with_classifier(weights),
}
"""What a rule is bound to, without a file; the slow version is given the same."""


def slow_version(name: str):
    """The rule once more: of one context, or else of a whole tree or chain."""
    for module in (rule_reference, local_reference, relaxed_reference):
        if name in vars(module):
            return partial(rule_reference.walk, local=vars(module)[name])
    return vars(path_reference)[name]


@dataclass(frozen=True)
class Entry:
    """A rule in one setting.

    name, options  of the rule.
    given          what it is bound to (`GIVEN`).
    relaxes        some node of the cases is relaxed: "never", "warm" (above temperature 0) or
                   "always".
    """

    name: str
    relaxes: str
    options: dict[str, Any]
    given: dict[str, Any]

    def rule(self, **changes: Any) -> Rule:
        rule = registry.rule(self.name)(**self.options | changes)
        return GIVEN[self.name](rule, **self.given) if self.given else rule

    def expected(self, tree: Tree) -> Expected:
        """What the slow version makes of a row's contexts. It has defaults of its own, and the
        rule's options."""
        if self.name == "threshold":  # its lossless test takes every candidate for a point mass
            tree = {
                node: (replace(context, sampled=False), children)
                for node, (context, children) in tree.items()
            }
        return slow_version(self.name)(tree, **self.options | self.given)


def runs(rule: Rule, v: Verification) -> bool:
    """Is the rule defined for such candidates and settings?"""
    draft = v.draft
    try:
        rule.check(
            DraftCapabilities("model", True, draft.sampled, chain=draft.chain, bonus_q=True),
            v.sampling,
        )
    except FileMissing:
        pass
    except ValueError:
        return False
    return True


@cache
def weights_of_states() -> torch.Tensor:
    return torch.linalg.pinv(WEIGHT).T


def with_states(v: Verification) -> Verification:
    """Hidden states of both models, those of the target giving the case's logits through WEIGHT; of
    the requests every second one is thinking, and they have answered 1, 2, ... tokens and spent
    different parts of a budget of 8."""
    rows = torch.arange(len(v.u))
    v.draft.hidden = torch.randn(
        *v.u.shape, DRAFT_HIDDEN, generator=torch.Generator().manual_seed(0)
    )
    state = {
        "spent": torch.linspace(0.0, 8.0, len(rows), dtype=torch.float64),
        "thinking": rows % 2 == 0,
        "answered": rows + 1,
    }
    return Verification(v.draft, v.logits, v.sampling, v.u, v.logits @ weights_of_states(), state)


@cache
def case(
    seed: int,
    sampling: Sampling,
    sampled: bool,
    tree: bool,
    behind_leaves: bool = False,
    **size: int,
) -> Verification:
    """A random case with states; `behind_leaves`: the draft has logits behind its last token
    too."""
    v = with_states(
        random_case(seed, sampling, sampled=sampled, tree=tree, shift=(4.0, -1.0)[seed % 2], **size)
    )
    if behind_leaves:
        z = v.draft.logits
        v.draft.logits = z.where(
            ~z.isnan(), torch.randn(z.shape, generator=torch.Generator().manual_seed(0))
        )
    return v


def cases(
    rule: Rule, sampling: Sampling, seeds: range = range(4), **size: int
) -> list[Verification]:
    """Chains and trees, sampled and deterministic, with positive and with mostly negative logits,
    as the rule takes them."""
    found = [
        case(seed, sampling, sampled, tree, rule.bonus_needs_q(sampling), **size)
        for seed in seeds
        for sampled in (False, True)
        for tree in (False, True)
        if not (sampled and sampling.greedy)
    ]
    return [v for v in found if runs(rule, v)]


ARC = {"embedding": EMBEDDING.double().numpy()}
HEADS = {"weight": WEIGHT.double().numpy()}
BOUND: dict[str, dict[str, Any]] = {
    "": {},
    "one bucket": ARC | {"constants": ARC_ONE},
    "three buckets": ARC | {"constants": ARC_THREE},
    "heads": HEADS,
    "singletons": {"groups": SINGLETONS},
    "overlapping": {"groups": OVERLAPPING},
    "autojudge both": {"weights": classifier("autojudge", "both")},
    "autojudge target": {"weights": classifier("autojudge", "target")},
    "judge target": {"weights": classifier("judge", "target")},
}
"""What the last column of rule_table.txt names."""


def _entries():
    """Label and entry of each line of rule_table.txt: `label | relaxes | options | bound to`, of
    which the last two may be missing. A label begins with the rule's name."""
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        label, relaxes, options, bound = [*map(str.strip, line.split("|")), "", ""][:4]
        yield (
            label,
            Entry(label.split()[0], relaxes, yaml.safe_load(f"{{{options}}}"), BOUND[bound]),
        )


TABLE = dict(_entries())
