"""What a rule does to the target's distribution, exactly: the law R of each emitted token beside
the target's p.

In the context of a kept node (the root included), with children x_1 … x_k in draft order, a_i the
probability over the test's own uniform number that x_i is kept if it is tested, e the normalised
`emit` weights:

    R(y) = sum_i a_i prod_(j<i) (1 - a_j) [y = x_i] + prod_j (1 - a_j) e(y)   fixed candidates
    R(y) = q(y) a(y) + sum_x q(x) (1 - a(x)) e_x(y)                   one candidate drawn from q

A token's distortion is KL(R || p), p the processed distribution, nats; at temperature 0, where p is
a point mass, the log-probability that is lost: log p0(argmax) - E_R[log p0], p0 the softmax at
temperature 1. By the chain rule its sum over an answer is the divergence of the rule's texts from
the target's where R depends on the text alone; where it depends on the place in the cycle too, it
is an upper bound (convexity).

a_i is found by bisection: a rule keeps a node iff the node's own number lies below some value. A
rule with randomness of its own (`Rule.has_own_randomness`) is averaged over `DRAWS` draws, with the
Miller–Madow correction of the entropy. A rule that looks along the path or has a state has no R
given the context; if it is lossless, R = p by its theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from methods.batch import ENTROPIES, LEVELS, PLACES, Divergence, Generation
from methods.decode import Limits, Observer
from methods.method import Method
from methods.rules.base import Rule
from methods.rules.lossless import sibling_mass
from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk, walk
from methods.sampling import Sampling
from methods.trees.draft import Draft

POWERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24)
"""4 / T of the temperatures T at which the distance to the target is known: powers of one
exponential."""
DRAWS = 32
LARGEST_U = 1 - 2**-24
NEGLIGIBLE = 1e-6
"""The least probability under q, and of being rejected, of a candidate that is looked at by
itself."""
HALVINGS, CLOSE, CHUNK = 24, 2e-6, 32
"""Steps of the bisection; how near to a guess a value must lie; candidates whose `emit` weights are
held at once."""
SUMS = ("nats", "tv", "js", "outside", "entropy", "logit", "tv_at_1")
UNCERTAINTY = -1
"""Column of `compared` with the entropy of the target at temperature 1."""
Probe = Callable[[Tensor], Tensor]
"""Uniform numbers -> bool, of the same shape: the node is kept."""


class LawRecorder(Observer):
    """Adds up what the law R of each emitted token says, for the generations of a batch.

    Rows that have ended are passed over. An answer in which the rule decides otherwise than by
    thresholds on the nodes' own numbers gets no value: it has randomness of its own that it does
    not declare."""

    def __init__(self, method: Method, limits: Limits) -> None:
        self._rule, self._sampling, self._limits = method.rule, method.sampling, limits
        self._basis = "draws" if self._rule.has_own_randomness() else "law"
        self._parts: list[tuple[Tensor, Tensor]] = []
        self._left: list[int] = []
        self._unknown: set[int] = set()
        self._random = torch.Generator().manual_seed(0)

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        self._left = [self._limits.max_new_tokens] * len(token)
        self._add(
            torch.arange(len(token)),
            logits,
            _normal(self._sampling.probs(logits).double()),
            token.tolist(),
        )

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        alive = torch.tensor([self._left[request] > 0 for request in requests], device=token.device)
        if not alive.any():
            return
        rows, nodes = (path.kept & alive[:, None]).nonzero(as_tuple=True)
        owners = torch.tensor(requests, device=rows.device)[rows]
        law, corrected = self._law(v, decision, rows, nodes, owners)
        tokens = torch.cat([torch.where(path.kept, v.draft.tokens, -1)[:, 1:], token[:, None]], 1)[
            alive
        ]
        self._add(owners, v.logits[rows, nodes], law, tokens[tokens >= 0].tolist(), corrected)

    def add_to(self, generations: Sequence[Generation]) -> None:
        """Set the `divergence` of the generations of all requests."""
        owners, values = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        for request, generation in enumerate(generations):
            if request not in self._unknown:
                of_request = values[owners == request][: len(generation.output_ids)]
                sums = of_request.sum(0).tolist()
                nats = of_request[:, SUMS.index("nats")].contiguous()
                levels = _between(LEVELS, nats)
                entropies = _between(ENTROPIES, of_request[:, UNCERTAINTY])
                brackets = len(ENTROPIES) + 1
                generation.divergence = Divergence(
                    self._basis,
                    len(of_request),
                    log_mass=sums[len(SUMS) : UNCERTAINTY],
                    nats_at=[part.sum().item() for part in nats.tensor_split(PLACES)],
                    nats_counts=levels.bincount(minlength=len(LEVELS) + 1).tolist(),
                    nats_by_entropy=entropies.bincount(nats, minlength=brackets).tolist(),
                    tokens_by_entropy=entropies.bincount(minlength=brackets).tolist(),
                    nats_largest=max(nats.tolist(), default=0.0),
                    **dict(zip(SUMS, sums[: len(SUMS)], strict=True)),
                )

    def _law(
        self, v: Verification, decision: Decision, rows: Tensor, nodes: Tensor, owners: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """R [M, V] float64 in the contexts (rows, nodes), both [M], and the correction [M] of its
        entropy."""
        basis = basis_of(self._rule, v)
        if basis == "theorem":
            self._basis = "theorem"
            if not self._rule.is_lossless(v.sampling):
                self._unknown |= set(owners.tolist())
            return _normal(v.p[rows, nodes].double()), None
        if basis == "draws":
            u = torch.rand((DRAWS, *v.u.shape), generator=self._random).to(v.u)
            return Draws(self._rule, v, u).law(rows, nodes)
        if judges_paths(self._rule, v):
            return stated_law(self._rule, v, rows, nodes), None
        kept = keep_probability(self._rule, v)
        strange = hides_randomness(v, kept, decision.accept)
        self._unknown |= set(owners[strange[rows]].tolist())
        if is_drawn(v):
            return sampled_law(self._rule, v, rows, nodes), None
        return tree_law(self._rule, v, rows, nodes, first_kept(v, kept)), None

    def _add(
        self,
        owners: Tensor,
        logits: Tensor,
        law: Tensor,
        tokens: list[int],
        corrected: Tensor | None = None,
    ) -> None:
        values = compared(logits, law, self._sampling)
        if corrected is not None:
            values[:, SUMS.index("entropy")] += corrected
            values[:, SUMS.index("nats")] -= 0 if self._sampling.greedy else corrected
        self._parts.append((owners.cpu(), values.cpu()))
        for owner, token in zip(owners.tolist(), tokens, strict=True):
            self._left[owner] = (
                0 if token in self._limits.eos_ids else max(0, self._left[owner] - 1)
            )


def _between(bounds: Sequence[float], values: Tensor) -> Tensor:
    """How many of the `bounds` are at most each of the values [M]: int64 [M]."""
    return torch.bucketize(values.contiguous(), values.new_tensor(bounds), right=True)


def compared(logits: Tensor, law: Tensor, sampling: Sampling) -> Tensor:
    """[M, 7 + 12 + 1] float64 of R = `law` [M, V] beside the target with raw `logits` [M, V], as
    `Divergence` adds them up: nats, TV, JS, mass of R where p is 0, H(R), E_R[z], TV from the whole
    target at temperature 1, then logsumexp(z / T) at each temperature of `POWERS`, then the entropy
    of the whole target at temperature 1."""
    z = logits.double()
    top, best = z.max(-1)
    # to 1e-6, in half the time
    power = {1: ((logits - logits.amax(-1, keepdim=True)).float() / 4).exp()}
    for n in POWERS:
        power[n] = power[n // 2] * power[n - n // 2]
    mass = torch.stack([power[n].sum(-1) for n in POWERS], -1).double()
    log_mass = mass.log() + top[:, None] * (z.new_tensor(POWERS) / 4)
    entropy = -torch.xlogy(law, law).sum(-1)
    logit = torch.linalg.vecdot(law, z)
    whole = power[4] / mass[:, POWERS.index(4), None]
    at_1 = (law - whole).abs_().sum(-1) / 2
    uncertainty = log_mass[:, POWERS.index(4)] - torch.linalg.vecdot(whole, z)
    of_target = [log_mass, uncertainty[:, None]]
    if sampling.greedy:
        at_best = law.gather(-1, best[:, None])[:, 0]
        missing = 1 - at_best
        js = (
            torch.xlogy(at_best, at_best)
            - torch.xlogy(at_best + 1, (at_best + 1) / 2)
            + missing * math.log(2)
        ) / 2
        of_law = torch.stack([top - logit, missing, js, missing, entropy, logit, at_1], -1)
        return torch.cat([of_law, *of_target], -1)
    processed = sampling.process(logits).double()
    log_p = processed.log_softmax(-1)
    p = log_p.exp()
    outside = torch.where(p > 0, 0.0, law).sum(-1)
    finite = log_p.masked_fill(processed.isinf(), 0.0)
    cross = -torch.linalg.vecdot(law, finite)
    nats = torch.where(outside > 0, torch.inf, (cross - entropy).clamp(min=0))
    middle = (law + p).div_(2)
    js = (
        -torch.xlogy(middle, middle).sum(-1) - (entropy - torch.linalg.vecdot(p, finite)) / 2
    ).clamp(min=0)
    tv = (law - p).abs_().sum(-1) / 2
    of_law = torch.stack([nats, tv, js, outside, entropy, logit, at_1], -1)
    return torch.cat([of_law, *of_target], -1)


def is_drawn(v: Verification) -> bool:
    """Whether the candidates were drawn from the draft's distribution."""
    return v.draft.sampled and not v.sampling.greedy and v.draft.nodes > 1


def basis_of(rule: Rule, v: Verification) -> Literal["law", "draws", "theorem"]:
    """How R is known in this draft: computed, averaged over draws, or, if at all, by the theorem
    that the rule is lossless."""
    if not rule.has_law():
        return "theorem"
    if judges_paths(rule, v):
        return "law"
    if is_drawn(v) and (rule.has_own_randomness() or not v.draft.chain):
        return "theorem"
    return "draws" if rule.has_own_randomness() else "law"


def judges_paths(rule: Rule, v: Verification) -> bool:
    """Whether the rule judges paths of drawn candidates, so that a decision on a node depends on
    the numbers of others, towards a law that is known in every context that is reached."""
    return rule.judges_paths and rule.has_law() and is_drawn(v)


def stated_law(rule: Rule, v: Verification, rows: Tensor, nodes: Tensor) -> Tensor:
    """R [M, V] in the contexts (rows, nodes) of such a rule: `Rule.drawn_law` where a token was
    drafted behind them, p elsewhere."""
    law = _normal(v.p[rows, nodes].double())
    inner = v.expanded[rows, nodes]
    if inner.any():
        p, q = (of[rows[inner], nodes[inner]] for of in (v.p, v.q))
        stated = rule.drawn_law(p, q)
        assert stated is not None  # `judges_paths`
        law[inner] = _normal(stated.double())
    return law


def why_no_law(rule: Rule, v: Verification) -> str:
    """Why R is not known of a rule that is not lossless."""
    if not rule.has_law():
        return "a decision depends on more than its context"
    if rule.has_own_randomness():
        return "it has randomness of its own, and candidates were drawn"
    return "the law on trees of drawn candidates is not computed"


def hides_randomness(v: Verification, kept: Tensor, accept: Tensor) -> Tensor:
    """[B] bool: the rule decided `accept` [B, N] otherwise than by the thresholds `kept` [B, N] on
    the nodes' own numbers, although it declares no randomness of its own."""
    tested = v.draft.valid & (v.draft.depth > 0) & ((v.u - kept).abs() > 2 * CLOSE)
    return (tested & ((v.u < kept) != accept)).any(1)


def keep_probability(rule: Rule, v: Verification) -> Tensor:
    """[B, N] float64: the probability over its own number that a candidate, as it was drafted, is
    kept if it is tested."""
    if v.draft.nodes == 1:
        return torch.zeros_like(v.u, dtype=torch.float64)
    guess = None
    if is_drawn(v):
        guess = (v.p_token / v.q_token.clamp(min=1e-30)).clamp(max=1.0)
    elif not v.sampling.greedy:
        p_token, earlier = sibling_mass(v)
        guess = (p_token / (1.0 - earlier).clamp(min=1e-30)).clamp(max=1.0)
    return threshold_of(lambda u: rule.decide(with_u(v, u)).accept, v.u, guess)


def first_kept(v: Verification, kept: Tensor) -> Tensor:
    """[B, N] float64: the probability that each node is the first of its siblings to be kept, in
    its context."""
    earlier = torch.where(v.earlier_siblings, 1 - kept[:, None, :], 1.0).prod(-1)
    return kept * earlier * v.draft.valid


def tree_law(rule: Rule, v: Verification, rows: Tensor, nodes: Tensor, first: Tensor) -> Tensor:
    """R [M, V] in the contexts (rows, nodes), both [M]: `first` [B, N] is the probability that a
    node is the first of its siblings to be kept, in its context."""
    weights = emitted(rule, v, rows, nodes)
    place = torch.full_like(v.draft.tokens, -1)
    place[rows, nodes] = torch.arange(len(rows), device=rows.device)
    children = v.draft.valid & (v.draft.depth > 0) & (place.gather(1, v.parent) >= 0)
    row, child = children.nonzero(as_tuple=True)
    context, share = place.gather(1, v.parent)[row, child], first[row, child]
    left = (
        torch.ones(len(rows), dtype=torch.float64, device=rows.device)
        .index_add(0, context, -share)
        .clamp(min=0)
    )
    law = weights.mul_(left[:, None])
    return law.index_put_((context, v.draft.tokens[row, child]), share, accumulate=True)


def emitted(rule: Rule, v: Verification, rows: Tensor, nodes: Tensor) -> Tensor:
    """[M, V] float64: the law of the token behind each of the contexts (rows, nodes) once all
    children are rejected."""
    if rule.emits_argmax(v.sampling):
        return _laws(v, rows).scatter_(-1, v.argmax[rows, nodes, None], 1.0)
    turn = (rows[:, None] == rows).tril(-1).sum(-1)  # which of its row's contexts it is
    law = _laws(v, rows)
    for each in range(int(turn.max()) + 1):
        at_turn = turn == each
        node = torch.zeros_like(v.draft.tokens[:, 0]).index_put((rows[at_turn],), nodes[at_turn])
        law[at_turn] = rule.emit(v, node)[rows[at_turn]].double()
    return law.div_(law.sum(-1, keepdim=True))


class Draws:
    """What a rule with randomness of its own does in draws `u` [D, B, N] of the nodes' numbers.

    kept  [B, N] float64: the share of the draws in which each node is on the kept path."""

    def __init__(self, rule: Rule, v: Verification, u: Tensor) -> None:
        self._rule, self._draws = rule, [with_u(v, numbers) for numbers in u]
        self.kept = torch.zeros(v.u.shape, dtype=torch.float64, device=v.u.device)
        self._first: list[Tensor] = []
        for drawn in self._draws:
            decision = rule.decide(drawn)
            self.kept += walk(drawn, decision).kept
            accept = decision.accept & v.draft.valid & (v.draft.depth > 0)
            self._first.append(accept & ~(v.earlier_siblings & accept[:, None, :]).any(-1))
        self.kept /= len(u)

    def law(self, rows: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """R [M, V] in the contexts (rows, nodes), both [M], the mean over the draws, and by how
        much the entropy of such a mean is too low, [M]: (outcomes - 1)/(2 D), an outcome being the
        child that is kept, or none."""
        v, draws = self._draws[0], len(self._draws)
        count = torch.stack(self._first).sum(0)
        if type(self._rule).emit is Rule.emit:  # the target's p, whatever was drawn
            law = tree_law(self._rule, v, rows, nodes, count.double() / draws)
        else:
            law = _laws(v, rows)
            for drawn, first in zip(self._draws, self._first, strict=True):
                law += tree_law(self._rule, drawn, rows, nodes, first.double())
            law /= draws
        of_context = torch.zeros_like(count).scatter_add(1, v.parent, count)
        outcomes = torch.zeros_like(count).scatter_add(1, v.parent, (count > 0).long())
        outcomes = (outcomes + (of_context < draws))[rows, nodes]
        return law, (outcomes - 1).clamp(min=0).double() / (2 * draws)


def sampled_law(rule: Rule, v: Verification, rows: Tensor, nodes: Tensor) -> Tensor:
    """R [M, V] in the contexts (rows, nodes) of a chain whose candidates were drawn from q.
    Candidates that are `NEGLIGIBLE` are taken to be tested as `lossless` tests them."""
    inner = nodes < v.drafted[rows]
    law = _laws(v, rows)
    if not inner.all():
        law[~inner] = emitted(rule, v, rows[~inner], nodes[~inner])
    if not inner.any():
        return law
    of = _Candidates(rule, v, rows[inner], nodes[inner])
    if (stated := rule.drawn_law(of.p, of.q)) is not None:
        law[inner] = _normal(stated.double())
        return law
    likely = of.q > NEGLIGIBLE
    kept = torch.minimum(of.p, of.q).double() / of.q.double().clamp(min=1e-300)
    tokens, real = _packed(likely)
    some, unknown = bracket(partial(of.kept, tokens), of.u_like(tokens), kept.gather(1, tokens).T)
    if (unknown & real.T).any():
        hard, _ = _packed(unknown.T & real)
        places = tokens.gather(1, hard)
        exact = bisected(partial(of.kept, places), of.u_like(places))
        some = torch.where(unknown, some.T.scatter(1, hard, exact.T).T, some)
    kept.scatter_(
        1, torch.where(real, tokens, tokens[:, :1]), torch.where(real.T, some, some[:1]).T
    )
    keeps = of.q * kept
    law[inner] = _normal(keeps + of.rejected((of.q - keeps).clamp(min=0)))
    return law


def _packed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The columns that are chosen in each row of `chosen` [M, V] bool, as [M, C] places from the
    left, and [M, C] bool which of these are more than filling."""
    count = chosen.sum(-1, keepdim=True)
    width = max(1, int(count.max()))
    columns = torch.arange(chosen.shape[-1], device=chosen.device).expand_as(chosen)
    order = torch.where(chosen, chosen.cumsum(-1) - 1, width)
    packed = torch.zeros(len(chosen), width + 1, dtype=torch.long, device=chosen.device).scatter_(
        1, order, columns
    )
    return packed[:, :width], torch.arange(width, device=chosen.device) < count


class _Candidates:
    """Single contexts [M] of a chain, each with one candidate that changes while all else stays.

    p, q  [M, V] float32 distributions of target and draft in the contexts."""

    def __init__(self, rule: Rule, v: Verification, rows: Tensor, nodes: Tensor) -> None:
        def of(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[rows, nodes][:, None].expand(-1, 2, *x.shape[2:])

        self._rule, self._sampling = rule, v.sampling
        self._logits = v.logits[rows, nodes]
        self._draft_logits = of(v.draft.logits)
        self._hidden = of(v.hidden_or_none)
        self._draft_hidden = of(v.draft.hidden)
        self._state = {name: x[rows] for name, x in v.state.items()}
        self._root, self._node = v.draft.tokens[rows, nodes], torch.zeros_like(rows)
        self.p = v.sampling.probs(self._logits)
        self.q = _normal(v.sampling.probs(v.draft_logits[rows, nodes]))
        self._shared: dict[str, Tensor | tuple[Tensor, ...]] = {}
        whole = self._view(self._root, self._logits.new_zeros(len(rows)))
        self._shared = {
            "p": self.p[:, None].expand(-1, 2, -1),
            "q": self.q[:, None].expand(-1, 2, -1),
            "top2": whole.top2,
            "argmax": whole.argmax,
            "log_mass": whole.log_mass,
        }

    def u_like(self, tokens: Tensor) -> Tensor:
        """[C, M] numbers for tokens [M, C]."""
        return self._logits.new_zeros(tokens.T.shape)

    def kept(self, tokens: Tensor, u: Tensor) -> Tensor:
        """[C, M] bool: whether the tokens [M, C] are kept with these numbers [C, M]."""
        return torch.func.vmap(
            lambda *candidate: self._rule.decide(self._view(*candidate)).accept[:, 1]
        )(tokens.T, u)

    def rejected(self, mass: Tensor) -> Tensor:
        """[M, V] float64: what is emitted behind candidates that are rejected with `mass` [M,
        V]."""
        tokens, real = _packed(mass > NEGLIGIBLE)
        total, law = mass.sum(-1, keepdim=True), torch.zeros_like(mass)
        share = torch.where(real, mass.gather(1, tokens), 0.0)
        for some, masses in zip(tokens.T.split(CHUNK), share.T.split(CHUNK), strict=True):
            weights = torch.func.vmap(self._emitted)(some)
            if weights.stride(0) == 0:  # they do not depend on the token
                return total * _normal(weights[0].double())
            law += (masses[..., None] * _normal(weights.double())).sum(0)
        return law * (total / law.sum(-1, keepdim=True).clamp(min=1e-300))

    def _emitted(self, token: Tensor) -> Tensor:
        return self._rule.emit(self._view(token, self._logits.new_zeros(len(token))), self._node)

    def _view(self, token: Tensor, u: Tensor) -> Verification:
        """One candidate [M] in each context, tested with `u` [M]."""
        share = self.q.gather(1, token[:, None])
        draft = Draft.of_chain(
            torch.stack([self._root, token], 1),
            sampled=True,
            logits=self._draft_logits,
            q=torch.cat([torch.ones_like(share), share], 1),
            valid=torch.ones_like(self._root, dtype=torch.bool)[:, None].expand(-1, 2),
        )
        draft.hidden = self._draft_hidden
        logits = self._logits[:, None].expand(-1, 2, -1)
        seen = Verification(
            draft, logits, self._sampling, torch.stack([u, u], 1), self._hidden, self._state
        )
        seen.__dict__.update(self._shared)
        return seen


def threshold_of(probe: Probe, like: Tensor, guess: Tensor | None = None) -> Tensor:
    """Float64, in the shape of `like`: the value below which a number is kept. `guess` is tried
    first."""
    kept, unknown = bracket(probe, like, guess)
    return torch.where(unknown, bisected(probe, like), kept) if unknown.any() else kept


def bracket(probe: Probe, like: Tensor, guess: Tensor | None) -> tuple[Tensor, Tensor]:
    """The threshold where it is 0, 1 or near `guess`, as it is in most rules, and where it is
    not."""
    kept = probe(torch.full_like(like, LARGEST_U)).double()
    unknown = probe(torch.zeros_like(like)) & (kept == 0)
    if guess is not None and unknown.any():
        low = (guess * (1 - CLOSE)).to(like.dtype)
        high = (guess * (1 + CLOSE)).clamp(max=LARGEST_U).to(like.dtype)
        near = unknown & probe(low) & ~probe(high)
        kept, unknown = torch.where(near, guess.double(), kept), unknown & ~near
    return kept, unknown


def bisected(probe: Probe, like: Tensor) -> Tensor:
    """The threshold, to 2^-24."""
    low = torch.zeros_like(like, dtype=torch.float64)
    high = torch.ones_like(like, dtype=torch.float64)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = probe(middle.to(like.dtype))
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def with_u(v: Verification, u: Tensor) -> Verification:
    """The same draft, tested with other numbers [B, N]; what was computed of it is shared."""
    seen = Verification(v.draft, v.logits, v.sampling, u, v.hidden_or_none, v.state)
    seen.__dict__.update({name: x for name, x in v.__dict__.items() if name not in seen.__dict__})
    seen.by_draft = v.by_draft
    return seen


def _laws(v: Verification, rows: Tensor) -> Tensor:
    """[M, V] float64 zeros for the contexts in `rows` [M]."""
    return v.logits.new_zeros(len(rows), v.logits.shape[-1], dtype=torch.float64)


def _normal(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)
