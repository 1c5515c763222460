"""Every rule beside its slow float64 version, with the models, files and hidden states that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from methods import registry
from methods.rules._arc_constants import Bucket, Constants
from methods.rules._classifier import Classifier, Linear
from methods.rules._token_groups import Groups
from methods.rules.arc import Arc
from methods.rules.autojudge import Autojudge
from methods.rules.base import Rule
from methods.rules.coarse_grained import CoarseGrained
from methods.rules.contrastive import Contrastive
from methods.rules.dropmatch import Dropmatch
from methods.rules.fsd import Fsd
from methods.rules.greedy import Greedy
from methods.rules.judge import Judge
from methods.rules.lossless import Lossless
from methods.rules.mars import Mars
from methods.rules.random import Random
from methods.rules.threshold import Threshold
from methods.rules.typical import Typical
from methods.rules.verification import Verification
from tests.helpers import local_reference, path_pairs, relaxed_reference, rule_reference
from tests.helpers.rule_reference import Local, Tree

Expected = tuple[list[int], np.ndarray, tuple[int, int]]
"""Kept nodes, distribution of the next token, numbers of relaxed and of greedier nodes."""

ARC_EMBEDDING = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
ARC_ONE = Constants(target="test", fingerprint="abc", inv_std=(1 / ARC_EMBEDDING.std(0)).tolist(),
                    buckets=[Bucket(c=0.02, alpha_kappa=0.1, tau=0.5, n=100)])
ARC_THREE = ARC_ONE.model_copy(update={"edges": [0.3, 0.6], "buckets": [
    Bucket(c=0.01, alpha_kappa=0.05, tau=0.2, n=50), *ARC_ONE.buckets,
    Bucket(c=0.05, alpha_kappa=0.3, tau=0.9, n=50)]})

DROPMATCH_WEIGHT = torch.randn(12, 20, generator=torch.Generator().manual_seed(0)) / 4
DROPMATCH_TARGET = SimpleNamespace(head=lambda h: h @ DROPMATCH_WEIGHT.T)

GROUPS = {
    "singletons": [[v] for v in range(12)],
    "disjoint": [[0, 3, 6], [1, 2], [4, 5, 7, 8], [9], [10, 11]],
    "overlapping": [[0, 1, 2], [2, 3, 4], [0, 4, 5, 6], [6, 7], [7, 8, 9, 10, 11], [2, 11], [9]],
}

CSD_PAIRS = [(drafted, best) for drafted in range(12) for best in range(12) if (drafted + best) % 2]

TARGET_HIDDEN, DRAFT_HIDDEN = 7, 5


@dataclass(frozen=True)
class Pair:
    """A rule and its slow version.

    rule      bound to what it needs.
    expected  (case, row, the row's contexts) -> what the slow version keeps and emits.
    prepare   adds hidden states to a case.
    relaxes   some node of the cases is relaxed: "never", "warm" (above temperature 0) or "always".
    """

    rule: Rule
    expected: Callable[[Verification, int, Tree], Expected]
    prepare: Callable[[Verification], Verification] = lambda v: v
    relaxes: str = "always"


def _local(rule: Rule, local: Local, relaxes: str) -> Pair:
    return Pair(rule, lambda v, row, tree: rule_reference.walk(tree, local), relaxes=relaxes)


def _mars(relaxes: str = "always", **options: Any) -> Pair:
    local = partial(rule_reference.mars, **{"variant": "algorithm1", "theta": 0.9} | options)
    return _local(Mars(**options), local, relaxes)


def _fsd(relaxes: str = "always", **options: Any) -> Pair:
    local = partial(rule_reference.fsd, **{name: value for name, value in options.items() if name != "divergence"},
                    kind=options["divergence"])
    return _local(Fsd(**options), local, relaxes)


def _typical(**options: Any) -> Pair:
    rule = Typical(**options)
    return Pair(rule, lambda v, row, tree: relaxed_reference.typical(tree, v.sampling, **rule.model_dump()),
                relaxes="warm")


def _arc(constants: Constants, **options: Any) -> Pair:
    rule = Arc(**options).with_constants(constants, ARC_EMBEDDING)
    slow = relaxed_reference.arc_released if rule.variant == "released" else relaxed_reference.arc
    local = partial(slow, embedding=ARC_EMBEDDING.double().numpy(), constants=constants, theta=rule.theta,
                    q_mode=rule.q_mode)
    return _local(rule, local, "warm" if rule.variant == "released" else "always")


def states_behind_logits(v: Verification) -> Verification:
    """Hidden states that give the case's logits through DROPMATCH_WEIGHT: with 20 units for 12 tokens such exist."""
    return Verification(v.draft, v.logits, v.sampling, v.u, v.logits @ torch.linalg.pinv(DROPMATCH_WEIGHT).T)


def dropmatch_local(v: Verification, row: int, tree: Tree, options: dict[str, Any]) -> Local:
    """The slow DropMatch of one row: it is told the random number and the hidden state of the context it is asked
    about."""
    node = {id(context): number for number, (context, _) in tree.items()}
    weight = DROPMATCH_WEIGHT.double().numpy()
    if not v.sampling.greedy:
        options = options | {"temperature": v.sampling.temperature}

    def local(context, children):
        at = node[id(context)]
        return relaxed_reference.dropmatch(context, children, u=float(v.u[row, at]),
                                           hidden=v.hidden[row, at].double().numpy(), weight=weight, **options)
    return local


def _dropmatch(**options: Any) -> Pair:
    options = {"heads": 5, "p_drop": 0.3} | options
    return Pair(Dropmatch(**options).bind(DROPMATCH_TARGET, None),
                lambda v, row, tree: rule_reference.walk(tree, dropmatch_local(v, row, tree, options)),
                states_behind_logits)


def _chain(name: str, relaxes: str = "warm", **options: Any) -> Pair:
    """A rule of tests/helpers/local_reference.py, whose function has the rule's name and options."""
    return _local(registry.rule(name)(**options), partial(getattr(local_reference, name), **options), relaxes)


def logits_behind_leaves(v: Verification) -> Verification:
    """The draft has logits behind its last token too."""
    g = torch.Generator().manual_seed(0)
    draft_logits = v.draft.logits.where(~v.draft.logits.isnan(), torch.randn(v.draft.logits.shape, generator=g))
    return Verification(replace(v.draft, logits=draft_logits), v.logits, v.sampling, v.u)


def _threshold(relaxes: str = "warm", **options: Any) -> Pair:
    """Its lossless test takes every candidate for a point mass."""
    local = partial(local_reference.threshold, **options)

    def expected(v: Verification, row: int, tree: Tree) -> Expected:
        return rule_reference.walk({node: (replace(context, sampled=False), children)
                                    for node, (context, children) in tree.items()}, local)
    return Pair(Threshold(**options), expected, relaxes=relaxes)


def _contrastive(relaxes: str = "never", **options: Any) -> Pair:
    rule = Contrastive(**options)

    def expected(v: Verification, row: int, tree: Tree) -> Expected:
        complete = {node: (replace(context, draft_z=v.draft.logits[row, node].double().numpy()), children)
                    for node, (context, children) in tree.items()}
        t = v.sampling.temperature
        return rule_reference.walk(complete, partial(
            local_reference.contrastive, temperature=t, beta=rule.beta, mixed_temperature=rule.temperature or t,
            gate=rule.gate, alpha=rule.alpha))
    return Pair(rule, expected, logits_behind_leaves, relaxes)


def coarse(groups: list[list[int]], token: str, vocab: int = 12) -> CoarseGrained:
    """The rule with these groups, as if read from a file."""
    rule = CoarseGrained(token=token)
    rule._groups = Groups.from_lists(groups, vocab)
    return rule


def _coarse(name: str, token: str) -> Pair:
    relaxes = {"disjoint redraw": "warm", "disjoint keep": "always", "overlapping keep": "always"}
    return _local(coarse(GROUPS[name], token),
                  partial(relaxed_reference.coarse, groups=GROUPS[name], token=token),
                  relaxes.get(f"{name} {token}", "never"))


def classifier(kind: str, features: str, seed: int = 0) -> Classifier:
    """Random weights over the states of the target alone or of `both` models."""
    rng = np.random.default_rng(seed)
    size = TARGET_HIDDEN if features == "target" else DRAFT_HIDDEN + TARGET_HIDDEN
    return Classifier(kind=kind, target="t", fingerprint="abc", draft="d", draft_fingerprint="def", features=features,
                      mean=rng.normal(size=size).tolist(), scale=rng.uniform(0.5, 2, size).tolist(),
                      coef=rng.normal(size=size).tolist(), intercept=0.3)


def random_states(v: Verification) -> Verification:
    """Random hidden states of both models."""
    g = torch.Generator().manual_seed(0)
    v.draft.hidden = torch.randn(*v.u.shape, DRAFT_HIDDEN, generator=g)
    return Verification(v.draft, v.logits, v.sampling, v.u, torch.randn(*v.u.shape, TARGET_HIDDEN, generator=g))


def _importance(v: Verification, row: int, weights: Classifier) -> dict[int, float]:
    draft = v.draft.hidden[row].double().numpy() if weights.features == "both" else [None] * v.draft.nodes
    hidden = v.hidden[row].double().numpy()
    return {i: relaxed_reference.important(draft[i], hidden[i], weights) for i in range(v.draft.nodes)}


def _judged(rule: Autojudge | Judge, weights: Classifier, slow: Callable[..., Any]) -> Pair:
    def expected(v: Verification, row: int, tree: Tree) -> Expected:
        return rule_reference.walk(tree, partial(slow, matters=_importance(v, row, weights), threshold=rule.threshold))
    return Pair(rule.with_classifier(Linear.of(weights, "cpu")), expected, random_states)


def _path(name: str, relaxes: str, options: dict[str, Any]) -> Pair:
    rule = registry.rule(name)(**options)
    return Pair(rule, path_pairs.expected(name, options), path_pairs.prepare(name), relaxes)


PAIRS = {
    **{label: _path(*of) for label, of in path_pairs.PATHS.items()},
    "greedy": _local(Greedy(), rule_reference.greedy, "never"),
    "lossless": _local(Lossless(), rule_reference.lossless, "never"),
    "lossless draft": _local(Lossless(q_mode="draft"), partial(rule_reference.lossless, q_mode="draft"), "warm"),
    "mars algorithm1": _mars(),
    "mars algorithm1 0.5": _mars(theta=0.5),
    "mars algorithm1 prob": _mars(indicator="prob_ratio", theta=0.3),
    "mars algorithm1 margin": _mars(indicator="logit_margin", theta=0.1),
    "mars sampling": _mars(variant="sampling", theta=0.8),
    "mars sampling draft": _mars(variant="sampling", q_mode="draft"),
    "mars released": _mars("warm", variant="released", q_mode="draft"),
    "mars released exact": _mars("warm", variant="released", theta=0.7),
    "fsd": _fsd(divergence="js_released", threshold=0.15),
    "fsd greedy": _fsd(divergence="js", threshold=0.1, correction="greedy"),
    "fsd kl": _fsd(divergence="kl", threshold=0.4),
    "fsd kl_released": _fsd(divergence="kl_released", threshold=0.4),
    "fsd tv": _fsd(divergence="tv", threshold=0.3),
    "fsd processed": _fsd(divergence="tv", threshold=0.3, processed=True),
    "fsd kl processed": _fsd(divergence="kl", threshold=1.0, processed=True),
    "random": _local(Random(rate=0.6), partial(rule_reference.random, rate=0.6), "always"),
    "typical": _typical(),
    "typical released": _typical(variant="released"),
    "typical loose": _typical(epsilon=0.02, delta=0.1),
    "typical tight": _typical(epsilon=0.5, delta=0.9),
    "typical sample": _typical(epsilon=1.0, delta=0.5, correction="sample"),
    "typical released sample": _typical(variant="released", epsilon=0.6, delta=0.05, correction="sample"),
    **{f"arc {name} {buckets}": _arc(constants, **options)
       for buckets, constants in (("one", ARC_ONE), ("buckets", ARC_THREE))
       for name, options in {
           "paper": {"theta": 0.3}, "draft": {"theta": 0.8, "q_mode": "draft"},
           "released": {"variant": "released", "theta": 0.7},
           "released draft": {"variant": "released", "q_mode": "draft"}}.items()},
    "dropmatch naive": _dropmatch(variant="naive"),
    "dropmatch js": _dropmatch(variant="js"),
    "dropmatch majority": _dropmatch(variant="majority", p_drop=0.5),
    "dropmatch naive nucleus": _dropmatch(variant="naive", selection="nucleus", heads=3),
    "dropmatch js nucleus": _dropmatch(variant="js", selection="nucleus", p_drop=0.1),
    **{f"coarse {name} {token}": _coarse(name, token) for name in GROUPS for token in ("redraw", "keep")},
    "autojudge both": _judged(Autojudge(threshold=0.3), classifier("autojudge", "both"), relaxed_reference.autojudge),
    "autojudge target": _judged(Autojudge(threshold=0.6), classifier("autojudge", "target"),
                                relaxed_reference.autojudge),
    "cactus": _chain("cactus", delta=0.25),
    "cactus strict": _chain("cactus", "never", delta=0.0),
    "lossy": _chain("lossy", alpha=0.7),
    "cascade_opt": _chain("cascade_opt", alpha=0.05),
    "cascade_opt paper": _chain("cascade_opt", alpha=0.3, gate="paper"),
    "cascade_opt head": _chain("cascade_opt", alpha=0.3, head=0.8),
    "cascade_opt strict": _chain("cascade_opt", "never", alpha=-1.1),
    "cascade_tok": _chain("cascade_tok", alpha=0.35),
    "cascade_tok processed": _chain("cascade_tok", alpha=0.8, top_set="processed"),
    "cascade_tok zero": _chain("cascade_tok", "never", alpha=0.0),
    "cascade_tok all": _chain("cascade_tok", alpha=1.0),
    "cascade_tok tail": _chain("cascade_tok", alpha=0.8, variant="lossless_tail"),
    "cascade_tok all of the processed": _chain("cascade_tok", alpha=1.0, top_set="processed"),
    "mentored": _chain("mentored", budget=0.2),
    "mentored small": _chain("mentored", budget=0.01, tolerance=0.0),
    "mentored strict": _chain("mentored", "never", budget=0.0),
    "csd": _local(registry.rule("csd")(tau=0.02).with_pairs(CSD_PAIRS, "cpu", 12),
                  partial(local_reference.csd, pairs=CSD_PAIRS, tau=0.02), "always"),
    "csd strict": _local(registry.rule("csd")(tau=1.0).with_pairs(CSD_PAIRS, "cpu", 12),
                         partial(local_reference.csd, pairs=CSD_PAIRS, tau=1.0), "never"),
    "r_fuzzy": _chain("r_fuzzy", threshold=0.1),
    "r_fuzzy kl": _chain("r_fuzzy", threshold=0.4, divergence="kl"),
    "ensemble": _chain("ensemble", w=0.8),
    "ensemble transformers": _chain("ensemble", "always", w=0.5, variant="transformers"),
    "ensemble always-accept": _chain("ensemble", w=0.0),
    "contrastive": _contrastive(beta=0.5),
    "contrastive at temperature 2": _contrastive("warm", beta=0.1, temperature=2.0),
    "contrastive plausible": _contrastive(beta=1.0, gate="plausible"),
    "threshold": _threshold(single=0.4, acc=0.9),
    "threshold acc": _threshold(acc=0.6),
    "threshold strict": _threshold("never"),
    "entropy_verify": _chain("entropy_verify", threshold=0.95, alpha=0.4),
    "entropy_verify strict": _chain("entropy_verify", "never", threshold=1.0, alpha=0.0),
    "ears": _chain("ears", tolerance=0.5),
    "judge": _judged(Judge(), classifier("judge", "target"), relaxed_reference.judge),
}
