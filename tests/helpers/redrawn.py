"""Audits of texts whose law is known: the contexts of some scored texts, their tokens drawn anew.
A column of the table is a token here, so that every number is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from methods.audit import FEATURES, OF_DRAFT, SCALES
from results.metrics.audit import Tokens

Floats = NDArray[np.float64]
Law = Callable[[Floats, Tokens], Floats]
"""p [n, C] and its contexts -> the engine's law [n, C]."""
NAMES = (*FEATURES, *OF_DRAFT)


def feature(tokens: Tokens, name: str) -> Floats:
    """[n, C]."""
    values = tokens.features[..., NAMES.index(name)].astype(np.float64)
    return values * SCALES.get(name, 1.0)


def lossless(p: Floats, tokens: Tokens) -> Floats:
    return p


def colder(strength: float) -> Law:
    """p at the temperature 1 - strength."""
    return lambda p, tokens: normal((p / p.max(-1, keepdims=True)) ** (1 / (1 - strength)))


def greedier(strength: float) -> Law:
    """The likeliest token in its place, with this probability."""
    return lambda p, tokens: (1 - strength) * p + strength * feature(tokens, "argmax of p")


def towards_draft(strength: float) -> Law:
    """p^(1 - strength) q^strength, as a rule that trusts the draft."""
    return lambda p, tokens: normal(p * np.exp(strength * (feature(tokens, "ln q") - log(p))))


FAMILIES = {"colder": colder, "greedier": greedier, "towards the draft": towards_draft}


def log(p: Floats) -> Floats:
    return np.log(np.maximum(p, 1e-300))


def normal(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def divergence(tokens: Tokens, law: Law) -> float:
    """KL(law || p), nats per token."""
    p = np.exp(tokens.log_mass)
    r = law(p, tokens)
    return float((r * (log(r) - log(p))).sum(-1).mean())


def of_divergence(tokens: Tokens, family: Callable[[float], Law], wanted: float) -> Law:
    """The law of a family with this D."""
    return family(brentq(lambda s: divergence(tokens, family(s)) - wanted, 0, 0.99))


def redrawn(tokens: Tokens, law: Law, prompts: int, rng: np.random.Generator) -> Tokens:
    """The contexts of so many prompts, drawn with replacement, each token drawn from `law`."""
    rows, names = [], []
    for number, prompt in enumerate(rng.choice(np.unique(tokens.prompt), prompts)):
        own = np.flatnonzero(tokens.prompt == prompt)
        rows.append(own)
        names.append(np.full(len(own), number))
    some = tokens.of(np.concatenate(rows))
    p = np.exp(some.log_mass)
    cumulative = np.cumsum(law(p, some), -1)
    u = rng.random((len(some), 1)) * cumulative[:, -1:]
    column = (cumulative <= u).sum(-1)
    log_p = feature(some, "ln p")
    mean = (p * log_p).sum(-1)
    return replace(
        some,
        prompt=np.concatenate(names),
        text=np.concatenate(names),
        column=column,
        surprisal=-log_p[np.arange(len(some)), column],
        entropy=-mean,
        variance=(p * log_p**2).sum(-1) - mean**2,
    )
