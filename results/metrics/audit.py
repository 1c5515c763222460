"""Whether texts can be a target's own, from what the target says of each of their tokens
(`methods.audit`), and if not, how far off they are at least.

If each token x is drawn from p in its context, then F(x) - E_p F is a martingale difference for any
feature F of a token in its context, with a variance that p gives exactly. So

    z      sum of -ln p(x) - H(p) over the root of the sum of its variances, is N(0, 1)
    score  r' C^-1 r of the sums r of all features' differences with their covariance C, is chi2

whatever the prompts, and wherever answers end. The Donsker-Varadhan bound is of the Kullback-
Leibler divergence D of the engine's law from p, nats per token:

    D >= mean of f(x) - ln E_p exp f,      f = w . F

with w fitted to the answers of other prompts, so that a good fit to chance gives no bound. An
engine beside its control, the same engine without speculation, is judged by the differences of the
same means; errors are those of prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from results.metrics.intervals import LEVEL

Floats = NDArray[np.float64]
FOLDS = 5
"""The prompts are divided so; the witness of one part is fitted to the others."""
RIDGE = 1.0
"""Of a witness w: fitted as if w were normal with this standard deviation."""
FALSE_ALARMS = 0.01
"""Of a lossless engine, at most: shared by the tests."""
POWER = 0.8
SHARE = 1 / 15
"""Of D that z sees, by the audits of relaxed rules in docs/audit.md; it sees all of what another
temperature does."""
PLACES = {"first": (0, 1), "2-4": (1, 4), "5-16": (4, 16), "later": (16, 1 << 62)}
STEPS, CLOSE = 60, 1e-7
"""Newton's, and the relative gain that ends them."""
COLDNESS = 2.0 ** (np.arange(-5, 14) / 4)
"""1 / T at which `methods.audit` gives logsumexp(z / T)."""
FINE = np.geomspace(COLDNESS[0], COLDNESS[-1], 1401)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Arrays of `methods.audit.scored`, which explains them, and `prompt` [n] int: answers to one
    prompt depend on one another."""

    prompt: NDArray[np.int64]
    text: NDArray[np.int64]
    position: NDArray[np.int64]
    surprisal: Floats
    entropy: Floats
    variance: Floats
    excess: Floats
    excluded: NDArray[np.int64]
    log_mass: Floats
    features: NDArray[np.float32]
    column: NDArray[np.int64]
    heat: Floats

    def __len__(self) -> int:
        return len(self.column)

    def of(self, chosen: NDArray[Any]) -> Tokens:
        """Some of the tokens."""
        return Tokens(*(getattr(self, name)[chosen] for name in self.__slots__))

    @property
    def emitted(self) -> Floats:
        """[n, F]: the features of the tokens."""
        return self.features[np.arange(len(self)), self.column].astype(np.float64)

    def tilted(self, w: Floats) -> tuple[Floats, Floats]:
        """Columns' weights [n, C] under p exp(w . F), and ln E_p exp(w . F) [n]."""
        exponent = self.log_mass + self.features @ w
        top = exponent.max(-1, keepdims=True)
        weights = np.exp(exponent - top)
        mass = weights.sum(-1, keepdims=True)
        return weights / mass, (top + np.log(mass))[:, 0]

    def gains(self, w: Floats) -> Floats:
        """[n]: f(x) - ln E_p exp f."""
        return np.asarray(self.emitted @ w - self.tilted(w)[1])

    def moments(self, weights: Floats) -> tuple[Floats, Floats]:
        """Means [n, F] of the features under the columns' weights, and the sum [F, F] of their
        covariances."""
        means = np.einsum("nc,ncf->nf", weights, self.features)
        width = self.features.shape[-1]
        covariance = np.zeros((width, width))
        for feature in range(width):
            weighted = weights * self.features[..., feature]
            covariance[feature] = np.einsum("nc,ncf->f", weighted, self.features)
        return means, covariance - means.T @ means


def z_of(tokens: Tokens) -> float | None:
    """None where p leaves nothing to chance."""
    variance = float(tokens.variance.sum())
    if variance <= 0:
        return None
    return float((tokens.surprisal - tokens.entropy).sum() / math.sqrt(variance))


def residuals(tokens: Tokens) -> tuple[Floats, Floats]:
    """F(x) - E_p F of each token [n, F], and the covariance [F, F] of its sum."""
    means, covariance = tokens.moments(tokens.tilted(np.zeros(tokens.features.shape[-1]))[0])
    return tokens.emitted - means, covariance


def score_p(tokens: Tokens) -> float:
    """The p-value of all features together, 1 where none varies."""
    differences, covariance = residuals(tokens)
    square, rank = _square(differences.sum(0), covariance)
    return _chi2_p(square, rank)


def _square(sums: Floats, covariance: Floats) -> tuple[float, int]:
    """r' C^-1 r on the directions that vary, and their number."""
    scale = np.sqrt(np.diag(covariance))
    varies = scale > 1e-6 * max(1.0, float(scale.max(initial=0.0)))
    if not varies.any():
        return 0.0, 0
    unit = sums[varies] / scale[varies]
    correlation = covariance[np.ix_(varies, varies)] / np.outer(scale[varies], scale[varies])
    values, vectors = np.linalg.eigh(correlation)
    kept = values > 1e-6
    along = vectors[:, kept].T @ unit
    return float((along**2 / values[kept]).sum()), int(kept.sum())


def _chi2_p(square: float, rank: int) -> float:
    from scipy.stats import chi2  # takes time to import, which a refused command should not cost

    return float(chi2.sf(square, rank)) if rank else 1.0


def witness(tokens: Tokens) -> Floats:
    """w [F] that maximises the sum of f(x) - ln E_p exp f less |w|² / (2 RIDGE²), by Newton's
    method: the sum is concave."""
    w = np.zeros(tokens.features.shape[-1])

    def value(at: Floats) -> float:
        return float(tokens.gains(at).sum() - at @ at / (2 * RIDGE**2))

    best = value(w)
    for _ in range(STEPS):
        means, covariance = tokens.moments(tokens.tilted(w)[0])
        slope = (tokens.emitted - means).sum(0) - w / RIDGE**2
        step = np.linalg.solve(covariance + np.eye(len(w)) / RIDGE**2, slope)
        size, reached = 1.0, value(w + step)
        while reached < best and size > 1e-4:
            size /= 2
            reached = value(w + size * step)
        if reached - best < CLOSE * max(1.0, abs(best)):
            break
        w, best = w + size * step, reached
    return w


def fold_of(prompts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(prompts % FOLDS)


def held_out_gains(tokens: Tokens, *others: Tokens) -> list[Floats]:
    """The gain of each token under the witness of the other parts' answers, also of tokens of
    `others`, with these same witnesses."""
    engines = (tokens, *others)
    gains = [np.zeros(len(each)) for each in engines]
    folds = [fold_of(each.prompt) for each in engines]
    for fold in range(FOLDS):
        w = witness(tokens.of(folds[0] != fold))
        for gain, each, of_each in zip(gains, engines, folds, strict=True):
            held_out = of_each == fold
            if held_out.any():
                gain[held_out] = each.of(held_out).gains(w)
    return gains


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over tokens with its standard error over prompts and their number."""

    value: float
    error: float
    prompts: int

    @property
    def interval(self) -> tuple[float, float]:
        """At 95%, by Student's t."""
        from scipy.stats import t

        half = float(t.ppf((1 + LEVEL) / 2, self.prompts - 1)) * self.error
        return self.value - half, self.value + half

    @property
    def p_above(self) -> float:
        """The p-value of "it is at most 0"."""
        from scipy.stats import t

        if self.error <= 0:
            return 1.0
        return float(t.sf(self.value / self.error, self.prompts - 1))


def clustered(parts: Sequence[tuple[Floats, NDArray[np.int64]]]) -> tuple[Floats, Floats, int]:
    """The mean of [n, F] values of tokens, with the prompt [n] of each; of two parts the first less
    the second. Also its covariance [F, F], prompts taken as independent, and their number."""
    prompts = np.unique(np.concatenate([prompt for _, prompt in parts]))
    width = parts[0][0].shape[1]
    total, effects = np.zeros(width), np.zeros((len(prompts), width))
    for sign, (values, prompt) in zip((1, -1), parts, strict=False):
        mean = values.mean(0)
        total = total + sign * mean
        np.add.at(effects, np.searchsorted(prompts, prompt), sign * (values - mean) / len(values))
    count = len(prompts)
    return total, effects.T @ effects * count / (count - 1), count


def mean_of(parts: Sequence[tuple[Floats, NDArray[np.int64]]]) -> Mean:
    """As `clustered`, of one value a token [n]."""
    value, covariance, count = clustered([(gains[:, None], prompt) for gains, prompt in parts])
    return Mean(float(value[0]), math.sqrt(float(covariance[0, 0])), count)


def beside_control(tokens: Tokens, control: Tokens) -> tuple[float, float]:
    """z and the score test's p-value of the difference of two engines' means: Student's t and
    Hotelling's T² over prompts."""
    from scipy.stats import f as f_law
    from scipy.stats import norm, t

    surprise = [(each.surprisal - each.entropy, each.prompt) for each in (tokens, control)]
    mean = mean_of(surprise)
    ratio = mean.value / mean.error if mean.error > 0 else 0.0
    z = float(norm.isf(t.sf(ratio, mean.prompts - 1)))
    total, covariance, count = clustered(
        [(residuals(each)[0], each.prompt) for each in (tokens, control)]
    )
    square, rank = _square(total, covariance)
    if not 0 < rank < count:
        return z, 1.0
    return z, float(f_law.sf(square * (count - rank) / (rank * (count - 1)), rank, count - rank))


def nearest_temperature(tokens: Tokens) -> tuple[float, float, float] | None:
    """The temperature under which the tokens are most likely, within the support of p, with its 95%
    interval by the likelihood ratio; None where p leaves nothing to chance."""
    from scipy.interpolate import CubicSpline

    if float(tokens.variance.sum()) <= 0:
        return None
    log_mass = CubicSpline(np.log(COLDNESS), tokens.heat.sum(0))(np.log(FINE))
    likelihood = -float(tokens.excess.sum()) * FINE - log_mass
    near = FINE[likelihood >= likelihood.max() - 1.92]
    return float(1 / FINE[likelihood.argmax()]), float(1 / near[-1]), float(1 / near[0])


def detectable(tokens: int, tests: int = 3) -> tuple[float, float]:
    """The D, nats per token, that so many tokens show with probability `POWER`: of a change of
    temperature, and where z sees `SHARE` of D."""
    from scipy.stats import norm

    reach = float(norm.isf(FALSE_ALARMS / tests / 2) + norm.ppf(POWER))
    least = reach**2 / (2 * tokens)
    return least, least / SHARE


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the tokens: how many, their z, their mean gain, and their share of all gains."""

    tokens: int
    z: float | None
    gain: float
    share: float


@dataclass(frozen=True, slots=True)
class Audit:
    """What texts show; `bench.audit.plain` gives it as audit.json holds it.

    tokens, answers, prompts  audited.
    outside      tokens that the engine's own settings exclude, further than rounding explains.
    edge         further excluded tokens, left out.
    z, score_p   None at temperature 0.
    bound        of D, its control's subtracted; None at temperature 0.
    control      the control's own bound.
    p            of lossless text, corrected for the number of tests.
    temperature  the nearest, with its interval.
    lost         mean of the largest logit less that of the token.
    places       the tokens by place in the answer.
    entropies    the tokens by the entropy of p; none at temperature 0.
    worst        prompts, the largest sum of gains (at temperature 0 of what was lost) first.
    """

    tokens: int
    answers: int
    prompts: int
    outside: int
    edge: int
    z: float | None
    score_p: float | None
    bound: Mean | None
    control: Mean | None
    p: float
    temperature: tuple[float, float, float] | None
    lost: float
    places: Mapping[str, Part]
    entropies: Mapping[str, Part]
    worst: Sequence[tuple[int, int, float, float | None]]

    @property
    def is_consistent(self) -> bool:
        return self.p >= FALSE_ALARMS


def audited(tokens: Tokens, control: Tokens | None = None) -> Audit:
    """Judge the texts. They need two prompts in each of two folds."""
    inside = tokens.of(tokens.excluded == 0)
    beside = None if control is None else control.of(control.excluded == 0)
    is_drawn = len(inside) > 0 and float(inside.variance.sum()) > 0
    tests = [_excluded_p(tokens, control)]
    z = score = bound = control_bound = None
    gains, shown = tokens.excess, tokens
    if is_drawn:
        engines = [inside] if beside is None else [inside, beside]
        gains, *further = held_out_gains(*engines)
        shown = inside
        parts = [(gain, each.prompt) for gain, each in zip([gains, *further], engines, strict=True)]
        if beside is None:
            z, score = z_of(inside), score_p(inside)
        else:
            control_bound = mean_of(parts[1:])
            z, score = beside_control(inside, beside)
        bound = mean_of(parts)
        tests += [_two_sided(z), score, bound.p_above]
    return Audit(
        tokens=len(tokens),
        answers=len(np.unique(tokens.text)),
        prompts=len(np.unique(tokens.prompt)),
        outside=int((tokens.excluded == 2).sum()),
        edge=int((tokens.excluded == 1).sum()),
        z=z,
        score_p=score,
        bound=bound,
        control=control_bound,
        p=min(1.0, min(tests[:1] + [len(tests[1:]) * each for each in tests[1:]])),
        temperature=nearest_temperature(inside) if is_drawn else None,
        lost=float(tokens.excess.mean()),
        places=_by_place(shown, gains),
        entropies=_by_entropy(shown, gains) if is_drawn else {},
        worst=_worst(shown, gains),
    )


def _two_sided(z: float | None) -> float:
    from scipy.stats import norm

    return 1.0 if z is None else float(2 * norm.sf(abs(z)))


def _excluded_p(tokens: Tokens, control: Tokens | None) -> float:
    """Of as many tokens outside the support: one is proof, unless a control shows them, too."""
    outside = int((tokens.excluded == 2).sum())
    if not outside:
        return 1.0
    if control is None:
        return 0.0
    from scipy.stats import fisher_exact

    beside = int((control.excluded == 2).sum())
    table = [[outside, len(tokens) - outside], [beside, len(control) - beside]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def _by_place(tokens: Tokens, gains: Floats) -> dict[str, Part]:
    chosen = {
        name: (tokens.position >= start) & (tokens.position < end)
        for name, (start, end) in PLACES.items()
    }
    return _parts(tokens, gains, chosen)


def _by_entropy(tokens: Tokens, gains: Floats) -> dict[str, Part]:
    """A third of the tokens each, by the entropy of p."""
    low, high = np.quantile(tokens.entropy, (1 / 3, 2 / 3))
    third = (tokens.entropy > low).astype(int) + (tokens.entropy > high)
    names = (f"up to {low:.2g} nats", f"to {high:.2g} nats", f"above {high:.2g} nats")
    return _parts(tokens, gains, {name: third == at for at, name in enumerate(names)})


def _parts(
    tokens: Tokens, gains: Floats, chosen: Mapping[str, NDArray[np.bool_]]
) -> dict[str, Part]:
    total = float(gains.sum())
    parts = {}
    for name, some in chosen.items():
        if some.any():
            gain, count = float(gains[some].sum()), int(some.sum())
            share = gain / total if total > 0 else math.nan
            parts[name] = Part(count, z_of(tokens.of(some)), gain / count, share)
    return parts


def _worst(tokens: Tokens, gains: Floats) -> list[tuple[int, int, float, float | None]]:
    """Prompt, tokens, sum of gains and z of each prompt."""
    rows = []
    for prompt in np.unique(tokens.prompt):
        chosen = tokens.prompt == prompt
        rows.append(
            (int(prompt), int(chosen.sum()), float(gains[chosen].sum()), z_of(tokens.of(chosen)))
        )
    return sorted(rows, key=lambda row: -row[2])
