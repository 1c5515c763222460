"""Every rule beside its slow float64 version, in many settings: the table that the laws of rules go
through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

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


def _of(module: ModuleType, names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(module, name) for name in names.split()}


LOCAL = {
    **_of(rule_reference, "greedy lossless mars fsd random"),
    **_of(
        local_reference,
        "cactus lossy cascade_opt cascade_tok r_fuzzy mentored ensemble contrastive "
        "threshold entropy_verify ears",
    ),
    **_of(
        relaxed_reference,
        "coarse_grained dropmatch dropout_head arc autojudge judge either",
    ),
}
ALONG = _of(path_reference, "fly asd bild relaxed_topk block near_top secure_sd")
WHOLE = _of(relaxed_reference, "typical traversal tilted")
"""Slow versions of one context, of a chain, and of a whole tree."""


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
        options = self.options | self.given
        if self.name in WHOLE:
            return WHOLE[self.name](tree, **options)
        if self.name in ALONG or "w_first" in options:
            chain = path_reference.Chain.of(tree)
            kept, emitted = ALONG.get(self.name, path_reference.scheduled)(chain, **options)
            lossless = self.name == "block" and "variant" not in options
            return list(range(kept + 1)), emitted, (0, 0) if lossless else chain.not_strict(kept)
        if self.name == "threshold":  # its lossless test takes every candidate for a point mass
            tree = {
                node: (replace(context, sampled=False), children)
                for node, (context, children) in tree.items()
            }
        return rule_reference.walk(tree, partial(LOCAL[self.name], **options))


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


def _entry(
    name: str, relaxes: str = "always", given: dict[str, Any] | None = None, **options: Any
) -> Entry:
    return Entry(name, relaxes, options, given or {})


_arc = {"embedding": EMBEDDING.double().numpy()}
_heads = {"weight": WEIGHT.double().numpy()}
TABLE = {
    "greedy": _entry("greedy", "never"),
    "lossless": _entry("lossless", "never"),
    "lossless draft": _entry("lossless", "warm", q_mode="draft"),
    "mars": _entry("mars"),
    "mars prob": _entry("mars", indicator="prob_ratio", theta=0.3),
    "mars margin": _entry("mars", indicator="logit_margin", theta=0.1),
    "mars sampling": _entry("mars", variant="sampling", theta=0.8),
    "mars sampling strict": _entry("mars", "never", variant="sampling", theta=1.0),
    "mars sampling draft": _entry("mars", variant="sampling", q_mode="draft"),
    "mars released": _entry("mars", "warm", variant="released", q_mode="draft"),
    "mars released exact": _entry("mars", "warm", variant="released", theta=0.7),
    "fsd": _entry("fsd"),
    "fsd greedy": _entry("fsd", divergence="js", threshold=0.1, correction="greedy"),
    "fsd kl": _entry("fsd", divergence="kl", threshold=0.4),
    "fsd kl_released": _entry("fsd", divergence="kl_released", threshold=0.4),
    "fsd tv": _entry("fsd", divergence="tv", threshold=0.3),
    "fsd processed": _entry("fsd", divergence="tv", threshold=0.3, processed=True),
    "random": _entry("random", rate=0.6),
    "either": _entry(
        "either",
        first={"name": "random", "rate": 0.3},
        second={"name": "fsd", "divergence": "tv", "threshold": 0.3},
    ),
    "tilted": _entry("tilted", "warm"),
    "tilted loose": _entry("tilted", "warm", lam=0.05),
    "typical": _entry("typical", "warm"),
    "typical released": _entry("typical", "warm", variant="released"),
    "typical tight": _entry("typical", "warm", epsilon=0.5, delta=0.9),
    "typical sample": _entry("typical", "warm", epsilon=1.0, delta=0.5, correction="sample"),
    **{
        f"arc {buckets}": _entry("arc", "always", _arc | {"constants": constants})
        for buckets, constants in (("one", ARC_ONE), ("three", ARC_THREE))
    },
    "arc strict": _entry("arc", "never", _arc | {"constants": ARC_ONE}, theta=1.0),
    "arc draft": _entry(
        "arc", "always", _arc | {"constants": ARC_THREE}, theta=0.8, q_mode="draft"
    ),
    "arc released": _entry(
        "arc", "warm", _arc | {"constants": ARC_THREE}, variant="released", theta=0.7
    ),
    "arc released draft": _entry(
        "arc", "warm", _arc | {"constants": ARC_ONE}, variant="released", q_mode="draft"
    ),
    "dropmatch": _entry("dropmatch", "always", _heads),
    "dropmatch naive": _entry("dropmatch", "always", _heads, variant="naive"),
    "dropmatch majority": _entry("dropmatch", "always", _heads, variant="majority", p_drop=0.5),
    "dropmatch naive nucleus": _entry(
        "dropmatch", "always", _heads, variant="naive", selection="nucleus", heads=3
    ),
    "dropmatch without dropout": _entry(
        "dropmatch", "never", _heads, variant="majority", p_drop=0.0
    ),
    "dropout_head": _entry("dropout_head", "always", _heads),
    "dropout_head 4": _entry("dropout_head", "always", _heads, head=4, p_drop=0.4),
    "dropout_head without dropout": _entry("dropout_head", "never", _heads, p_drop=0.0),
    "coarse_grained singletons": _entry(
        "coarse_grained", "never", {"groups": SINGLETONS}, token="keep"
    ),
    "coarse_grained overlapping": _entry(
        "coarse_grained", "always", {"groups": OVERLAPPING}, token="keep"
    ),
    "coarse_grained redraw overlapping": _entry(
        "coarse_grained", "never", {"groups": OVERLAPPING}, token="redraw"
    ),
    "autojudge both": _entry(
        "autojudge", "always", {"weights": classifier("autojudge", "both")}, threshold=0.3
    ),
    "autojudge": _entry("autojudge", "always", {"weights": classifier("autojudge", "target")}),
    "autojudge strict": _entry(
        "autojudge", "never", {"weights": classifier("autojudge", "target")}, threshold=0.0
    ),
    "judge": _entry("judge", "always", {"weights": classifier("judge", "target")}),
    "cactus": _entry("cactus", "warm"),
    "cactus strict": _entry("cactus", "never", delta=0.0),
    "lossy": _entry("lossy", "warm"),
    "lossy strict": _entry("lossy", "never", alpha=0.0),
    "cascade_opt": _entry("cascade_opt", "warm", alpha=0.05),
    "cascade_opt paper": _entry("cascade_opt", "warm", alpha=0.3, gate="paper"),
    "cascade_opt paper strict": _entry("cascade_opt", "never", alpha=-1.1, gate="paper"),
    "cascade_opt head": _entry("cascade_opt", "warm", alpha=0.3, head=0.8),
    "cascade_opt strict": _entry("cascade_opt", "never", alpha=-1.1),
    "cascade_tok": _entry("cascade_tok", "warm"),
    "cascade_tok processed": _entry("cascade_tok", "warm", alpha=0.8, top_set="processed"),
    "cascade_tok processed all": _entry("cascade_tok", "warm", alpha=1.0, top_set="processed"),
    "cascade_tok zero": _entry("cascade_tok", "never", alpha=0.0),
    "cascade_tok all": _entry("cascade_tok", "warm", alpha=1.0),
    "cascade_tok tail": _entry("cascade_tok", "warm", alpha=0.8, variant="lossless_tail"),
    "mentored": _entry("mentored", "warm"),
    "mentored small": _entry("mentored", "warm", budget=0.01, tolerance=0.0),
    "mentored strict": _entry("mentored", "never", budget=0.0),
    "r_fuzzy": _entry("r_fuzzy", "warm"),
    "r_fuzzy kl": _entry("r_fuzzy", "warm", threshold=0.4, divergence="kl"),
    "r_fuzzy strict": _entry("r_fuzzy", "never", threshold=0.0),
    "ensemble": _entry("ensemble", "warm"),
    "ensemble strict": _entry("ensemble", "never", w=1.0),
    "ensemble transformers": _entry("ensemble", "always", w=0.5, variant="transformers"),
    "ensemble always-accept": _entry("ensemble", "warm", w=0.0),
    "ensemble scheduled": _entry("ensemble", "warm", w=0.2, w_first=1.0, tokens=6),
    "ensemble scheduled, transformers": _entry(
        "ensemble", w=0.2, w_first=0.9, tokens=3, schedule="step", variant="transformers"
    ),
    "contrastive": _entry("contrastive", "never"),
    "contrastive strict": _entry("contrastive", "never", beta=0.0),
    "contrastive at temperature 2": _entry("contrastive", "warm", beta=0.1, temperature=2.0),
    "contrastive plausible": _entry("contrastive", "never", beta=1.0, gate="plausible"),
    "threshold": _entry("threshold", "warm", single=0.4, acc=0.9),
    "threshold strict": _entry("threshold", "never"),
    "entropy_verify": _entry("entropy_verify", "warm"),
    "entropy_verify strict": _entry("entropy_verify", "never", threshold=1.0, alpha=0.0),
    "ears": _entry("ears", "warm"),
    "ears strict": _entry("ears", "never", tolerance=0.0),
    "fly": _entry("fly", window=2),
    "fly no window": _entry("fly", no_window=True, entropy=0.5),
    "fly no gate": _entry("fly", window=3, entropy=0.0),
    "fly strict": _entry("fly", "never", window=9),
    "fly vllm": _entry("fly", variant="vllm", window=2),
    "fly vllm of five": _entry("fly", variant="vllm", window=1, entropy=0.6, entropy_top_k=5),
    "asd": _entry("asd"),
    "asd dspark": _entry("asd", variant="dspark", regret_per_value=1.0),
    "asd strict": _entry("asd", "never", budget=0.0),
    "bild": _entry("bild", rollback=2.0),
    "relaxed_topk": _entry("relaxed_topk"),
    "relaxed_topk three": _entry("relaxed_topk", top_n=3, delta=0.2),
    "relaxed_topk thinking": _entry("relaxed_topk", span="thinking", begin=1, end=2),
    "relaxed_topk strict": _entry("relaxed_topk", "never", top_n=1),
    "near_top": _entry("near_top"),
    "near_top of three": _entry("near_top", threshold=0.5, top_n=3),
    "near_top strict": _entry("near_top", "never", top_n=1),
    "near_top thinking": _entry("near_top", span="thinking", begin=1, end=2),
    "near_top probability": _entry("near_top", by="probability", threshold=0.15),
    "near_top with protections": _entry(
        "near_top", threshold=0.1, from_position=1, after_tokens=3, protected=(0, 4, 7)
    ),
    "secure_sd": _entry("secure_sd", "warm", relaxed={"name": "lossy", "alpha": 0.7}, tokens=4),
    "secure_sd power": _entry(
        "secure_sd",
        "warm",
        relaxed={"name": "r_fuzzy", "threshold": 0.1},
        schedule="power",
        tokens=8,
        gamma=2.0,
    ),
    "secure_sd strict": _entry(
        "secure_sd", "never", relaxed={"name": "ensemble", "w": 0.0}, end_eta=0.0
    ),
    "block": _entry("block", "never"),
    "traversal": _entry("traversal", "never"),
}
"""Label -> entry; a label begins with the rule's name."""
