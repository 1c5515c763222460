"""The rows that are decoded together, and what each of them produced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # transformers is slow to import
    from methods.drafters.base import Proposer
    from methods.engine.cache import SlotCache
    from methods.prompt_rng import PromptRng
    from methods.rules.verification import State

    class TracedThreshold(Protocol):
        """A `methods.trace.TracedThreshold`."""

        @property
        def name(self) -> str: ...

        @property
        def relation(self) -> Literal[">=", "<=", "<", ">"]: ...

        @property
        def value(self) -> float: ...

    class Trace(Protocol):
        """A `methods.trace.Trace`."""

        @property
        def columns(self) -> dict[str, Any]: ...

        @property
        def threshold(self) -> TracedThreshold | None: ...


SHRINK = 8
"""A batch shrinks when one of so many of its rows has ended: moving the others costs little beside
a cycle."""

PLACES = (1, 4, 16)
"""Tokens of an answer up to which its nats are added up by themselves."""
LEVELS = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Nats per token between which tokens are counted."""
ENTROPIES = (0.1, 0.5, 1.0, 2.0)
"""Entropies of the target at temperature 1, nats, between which tokens and nats are added up."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far the rule's law R of each emitted token is from the target's p, summed over tokens, as
    `methods.distortion.compared` gives it and the store keeps it
    (`results.store.sample.Distortion`).

    basis     "law": exact; "draws": R is a mean over draws of the rule's own randomness; "theorem":
              R = p is proved.
    tokens    emitted tokens.
    nats      KL(R || p), infinite where R keeps what p excludes; at temperature 0 the
              log-probability that is lost.
    tv, js    total variation, Jensen–Shannon divergence in nats.
    outside   mass of R where p is 0.
    entropy   of R, nats.
    logit     mean of the raw logit z under R.
    tv_at_1   total variation from the target at temperature 1, not truncated.
    log_mass  logsumexp(z / T) at each temperature of `methods.distortion.POWERS`.
    nats_at   of the tokens up to each of `PLACES`, from the one before; last of the others.
    nats_counts
              tokens between each two of `LEVELS`; first those below all, last those above.
    nats_largest
              of one token.
    nats_by_entropy, tokens_by_entropy
              of the tokens where the target's entropy lies between each two of `ENTROPIES`; first
              those below all, last those above.
    """

    basis: str
    tokens: int
    nats: float
    tv: float
    js: float
    outside: float
    entropy: float
    logit: float
    tv_at_1: float
    log_mass: list[float]
    nats_at: list[float]
    nats_counts: list[int]
    nats_by_entropy: list[float]
    tokens_by_entropy: list[int]
    nats_largest: float

    def __add__(self, other: Divergence) -> Divergence:
        sums: dict[str, Any] = {}
        for part in fields(self)[1:-1]:
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            is_list = isinstance(mine, list)
            sums[part.name] = [*map(add, mine, theirs)] if is_list else mine + theirs
        largest = max(self.nats_largest, other.nats_largest)
        return Divergence(self.basis, **sums, nats_largest=largest)


@dataclass(slots=True, kw_only=True)
class Generation:
    """What one row produced, and what the decode loop counted of it; the store keeps the counts by
    these names (`results.store.sample.Counts`). Tokens after the end are dropped from text *and*
    from counts. Lists of counts have one entry per draft–verify cycle.

    committed  tokens committed in each cycle, the correction or bonus included.
    accepted   draft tokens accepted in each cycle.
    nodes      draft tokens that the target verified in each cycle, without root and padding.
    levels     depth of the deepest of them in each cycle.
    relaxed    emitted draft tokens that the lossless test rejects and that are not the target's
               argmax.
    greedier   emitted draft tokens that the lossless test rejects although they are the target's
               argmax.
    drafted    draft tokens before pruning, 0 without pruning.
    pruned     those of them that pruning dropped.
    flags      name of a rule's flag -> in how many contexts of emitted tokens it was set.
    prompt_tokens  tokens of the context that was given.
    output_ids     emitted tokens, the end-of-sequence token included; the first comes from the
                   prefill, so that len(output_ids) == 1 + sum(committed).
    prefill_s      seconds of wall time until the first token, the batch's divided by its rows.
    decode_s       seconds of wall time after that, the batch's divided by its rows.
    finish         "eos", "length" or "stop".
    text           of the emitted tokens, where it was asked for.
    nll            nats of all emitted tokens under the target's raw distribution, where they were
                   asked for.
    trace          every verified position, where it was asked for.
    """

    committed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    relaxed: int = 0
    greedier: int = 0
    drafted: int = 0
    pruned: int = 0
    flags: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    output_ids: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    decode_s: float = 0.0
    finish: str = ""
    text: str = ""
    nll: float | None = None
    divergence: Divergence | None = None
    trace: Trace | None = None


NOT_ADDED = ("finish", "text", "nll", "divergence", "trace")


def total(turns: Sequence[Generation]) -> Generation:
    """The turns of one answer as one: tokens, counts, seconds and nats added up."""
    whole = Generation()
    for name in (each.name for each in fields(Generation) if each.name not in NOT_ADDED):
        for turn in turns:
            so_far, more = getattr(whole, name), getattr(turn, name)
            setattr(
                whole,
                name,
                {key: so_far.get(key, 0) + more.get(key, 0) for key in {**so_far, **more}}
                if isinstance(so_far, dict)
                else so_far + more,
            )
    nats = [turn.nll for turn in turns if turn.nll is not None]
    whole.nll = sum(nats) if nats else None
    divergences = [turn.divergence for turn in turns if turn.divergence is not None]
    whole.divergence = (
        reduce(add, divergences) if divergences and len(divergences) == len(turns) else None
    )
    return whole


@dataclass(slots=True)
class Batch:
    """The rows that are decoded together.

    rows         committed tokens of each.
    generations  what they have produced.
    cache, rng, proposer, state  of the target, the uniforms, the draft and the rule; they hold the
                                 same rows.
    requests     places of the rows among the requests.
    """

    rows: list[list[int]]
    generations: list[Generation]
    cache: SlotCache
    rng: PromptRng
    proposer: Proposer
    state: State
    requests: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.requests = list(range(len(self.rows)))

    @property
    def unfinished(self) -> list[int]:
        """The places of the rows that have not ended."""
        return [place for place, generation in enumerate(self.generations) if not generation.finish]

    def shrink(self) -> None:
        """Rows that have ended leave if they are enough; what the proposer counted for them is read
        before. Graphs know a cache's memory: rows of a cache with graphs stay."""
        left = self.unfinished
        if self.cache.graphs is not None or SHRINK * (len(self.rows) - len(left)) < len(self.rows):
            return
        self.count_pruned()
        self.rows = [self.rows[place] for place in left]
        self.generations = [self.generations[place] for place in left]
        self.requests = [self.requests[place] for place in left]
        for part in (self.cache, self.rng, self.proposer):
            part.keep(left)
        self.state = {name: values[left] for name, values in self.state.items()}

    def count_pruned(self) -> None:
        """Set each generation's `drafted` and `pruned`."""
        for place, generation in enumerate(self.generations):
            counts = self.proposer.pruning_counts(place, len(generation.committed))
            generation.drafted, generation.pruned = counts
