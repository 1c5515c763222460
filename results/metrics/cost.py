"""What recorded cycles would cost on another machine: a clock that is computed from a profile
instead of measured.

A cycle costs draft + verification + acceptance + the rest. With n draft tokens verified, forwards
of the drafter's model over t_1 … t_f tokens, and B rows decoded together, its seconds are

    [drafting.cycle + Σ drafting.forwards(t_i) + target(1 + n) + accept.cycle + rest.cycle] ÷ B
    + (accept.node + rest.node) · n

with the drafting and the target of batch B. `target` and `forwards` are linear between the numbers
of tokens that the profile has, and go on as between the last two. An autoregressive token is a
cycle without a draft under the lossless rule. A prefill costs `prefill` and the drafter's share of
it, or, where they are not given, one forward over the prompt of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from results.store.errors import StoreError, printable
from results.store.sample import Compared, Sample, Timed, TimedRun

Forwards = Callable[[int], Sequence[int]]
"""Levels of a draft -> tokens of each forward of the drafter's model
(`methods.drafters.base.Drafter.forwards`)."""
DRAWN = " drawn"
"""Behind a drafter's name in `drafts`: drafts whose tokens are drawn, where the drafter has others
as well."""
LOSSLESS = "lossless"
MOST, LEAST = 20.0, 1e-3
"""Seconds of a part of a cycle, over those of one token in the target: at most, and at least for a
forward of a drafter's model and for the largest part. Measured profiles have 0.004 to 8."""
Seconds = Annotated[float, Field(ge=0, le=1000)]
ForwardSeconds = Annotated[float, Field(ge=1e-6, le=1000)]
Tokens = Annotated[int, Field(ge=1, le=1 << 24)]
Batch = Annotated[int, Field(ge=1, le=1 << 16)]


def _one_line(text: str) -> str:
    if not text.strip() or "\n" in text or printable(text) != text:
        raise ValueError("must be one line of printable characters")
    return text


Line = Annotated[str, AfterValidator(_one_line)]


class Frozen(BaseModel):
    """A part of a profile: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Linear(Frozen):
    """Seconds of a cycle, and of each draft token verified in it."""

    cycle: Seconds
    node: Seconds = 0.0

    def seconds(self, nodes: int) -> float:
        """Seconds of a cycle with so many nodes, or of a prompt with so many tokens."""
        return self.cycle + self.node * nodes


def between(points: Mapping[int, float], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Linear between the seconds at the numbers of tokens of `points`, and on as between the last
    two; 0 without any, constant with one."""
    if not points:
        return np.zeros(len(tokens))
    grid, seconds = map(np.array, zip(*sorted(points.items()), strict=True))
    slope = (seconds[-1] - seconds[-2]) / (grid[-1] - grid[-2]) if len(grid) > 1 else 0.0
    return np.asarray(np.interp(tokens, grid, seconds) + slope * np.maximum(tokens - grid[-1], 0))


class Drafting(Frozen):
    """Seconds of drafting: of a cycle, of a forward of the drafter's model by its tokens (none: it
    has no model); and of reading a prompt, None: those of a forward over it."""

    cycle: Seconds
    forwards: dict[Tokens, Seconds] = {}
    prefill: Linear | None = None

    @model_validator(mode="after")
    def _rises(self) -> Drafting:
        _check_rising("forwards", self.forwards)
        return self

    def forward(self, tokens: int) -> float:
        """Seconds of one forward over so many tokens."""
        return float(between(self.forwards, np.array([tokens]))[0])

    def reading(self, tokens: int) -> float:
        """Seconds of reading a prompt of so many tokens."""
        return self.forward(tokens) if self.prefill is None else self.prefill.seconds(tokens)

    def seconds(self, forwards: Sequence[int]) -> float:
        """Seconds of one cycle with these forwards, in tokens."""
        return self.cycle + float(between(self.forwards, np.array(forwards, dtype=int)).sum())


def _check_rising(name: str, seconds: Mapping[int, float]) -> None:
    if any(late < early for (_, early), (_, late) in pairwise(sorted(seconds.items()))):
        raise ValueError(f"{name}: more tokens take less time; give numbers that do not fall")


class Units(Frozen):
    """The unit of every time in a profile."""

    time: Literal["s"]


class Costs(Frozen):
    """What depends on the method, in seconds.

    drafts  drafter (or `DRAWN`) -> batch -> its cost.
    accept  rule (or `DRAWN`) -> decision, walk and correction token, and what its drafts cost more
            than those of the lossless rule; or the rule that it is priced as, since it was not
            measured.
    """

    drafts: dict[str, dict[Batch, Drafting]]
    accept: dict[str, Linear | str]

    @model_validator(mode="after")
    def _priced(self) -> Costs:
        for rule, other in self.priced_as.items():
            if not isinstance(self.accept.get(other), Linear):
                raise ValueError(f"accept.{rule}: {other} has no price here")
        return self

    @property
    def priced_as(self) -> dict[str, str]:
        """Rule -> the rule that it is priced as."""
        return {rule: cost for rule, cost in self.accept.items() if isinstance(cost, str)}

    def accepting(self, rule: str, drawn: bool) -> Linear | None:
        """What a rule's decision costs on tokens that were `drawn`, or on others; None where it has
        no price."""
        cost = self.accept.get(rule + DRAWN * drawn, self.accept.get(rule))
        return self.accepting(cost, drawn=False) if isinstance(cost, str) else cost


class Profile(Frozen):
    """What the parts of a cycle cost on a machine, in seconds: the format of conf/cost
    (docs/cost.md). `bench.config.cost_file` reads and writes it.

    units     of all numbers: seconds. A file must give it.
    title     machine, engine and model, for captions.
    sources   the commands that measured.
    target    batch -> tokens of a row -> seconds of one forward of the target.
    rest      what lies between the other parts of a cycle.
    prefill   of a prompt, and each of its tokens; None: one forward over it.
    sampled   drafting and acceptance above temperature 0.
    greedy    the same at temperature 0; None: as `sampled`.
    """

    units: Units = Units(time="s")
    title: Line
    sources: list[Line] = Field(min_length=1)
    target: dict[Batch, dict[Tokens, ForwardSeconds]] = Field(min_length=1)
    rest: Linear
    prefill: Linear | None = None
    sampled: Costs
    greedy: Costs | None = None

    @model_validator(mode="after")
    def _whole(self) -> Profile:
        for batch, seconds in self.target.items():
            if len(seconds) < 2 or 1 not in seconds:
                raise ValueError(
                    f"target.{batch}: give the seconds of one token and of at least one more number"
                )
            _check_rising(f"target.{batch}", seconds)
        self._check_units()
        return self

    def _check_units(self) -> None:
        """Raises ValueError for a part that is so far from the seconds of one token in the target
        that one of the two must have another unit."""
        token = self.target[min(self.target)][1]
        parts = {"rest.cycle": self.rest.cycle, "rest.node": self.rest.node}
        parts |= {} if self.prefill is None else {"prefill.node": self.prefill.node}
        models = {}
        for kind in ("sampled", "greedy"):
            costs = getattr(self, kind) or Costs(drafts={}, accept={})
            for rule, accept in costs.accept.items():
                if isinstance(accept, str):
                    continue
                parts[f"{kind}.accept.{rule}.cycle"] = accept.cycle
                parts[f"{kind}.accept.{rule}.node"] = accept.node
            for drafter, batches in costs.drafts.items():
                drafting = batches[min(batches)]
                parts[f"{kind}.drafts.{drafter}.cycle"] = drafting.cycle
                if (first := min(drafting.forwards.values(), default=0.0)) > 0:
                    models[f"{kind}.drafts.{drafter}.forwards"] = first
        times = parts | models
        high = [name for name, seconds in times.items() if seconds > MOST * token]
        low = [name for name, seconds in models.items() if seconds < LEAST * token]
        if high or low or 0 < max(times.values()) < LEAST * token:
            name = [*high, *low, "target"][0]
            raise ValueError(
                f"{name}: {times.get(name, token):g} beside {token:g} for a token in the target: "
                "these cannot both be seconds; give all times in seconds"
            )

    def forward(self, tokens: NDArray[np.int64], batch: int) -> NDArray[np.float64]:
        """Seconds of one forward of the target over so many tokens of each of `batch` rows."""
        if batch not in self.target:
            raise StoreError(
                f"batch={batch}: {self.title} has no such batch, but "
                f"{', '.join(map(str, self.target))}"
            )
        return between(self.target[batch], tokens)

    def reading(self, tokens: int, batch: int) -> float:
        """Seconds of a prompt of so many tokens in the target, one of `batch` rows."""
        return (
            float(self.forward(np.array([tokens]), batch)[0]) / batch
            if self.prefill is None
            else self.prefill.seconds(tokens)
        )

    def costs(self, greedy: bool) -> Costs:
        """What depends on the method, at temperature 0 or above."""
        return self.sampled if self.greedy is None or not greedy else self.greedy

    def drafting(self, drafter: str, batch: int, greedy: bool) -> Drafting:
        """What drafting costs. Raises StoreError, one line, for a drafter or batch that the profile
        does not have."""
        drafts = self.costs(greedy).drafts
        by_batch = drafts.get(drafter, drafts.get(drafter.removesuffix(DRAWN)))
        if by_batch is None or batch not in by_batch:
            raise StoreError(
                f"drafter={drafter} at batch={batch}: {self.title} does not price it; it has "
                f"{', '.join(f'{name} at {sorted(sizes)}' for name, sizes in drafts.items())}"
            )
        return by_batch[batch]

    def accepting(self, rule: str, greedy: bool, drawn: bool = False) -> Linear:
        """What a rule's decision costs. Raises StoreError, one line, for a rule that the profile
        does not have."""
        costs = self.costs(greedy)
        if (cost := costs.accepting(rule, drawn)) is None:
            raise StoreError(
                f"rule={rule}: {self.title} does not price it; it has {', '.join(costs.accept)}"
            )
        return cost


class Clock:
    """The clock of a method on the machine of a profile."""

    def __init__(
        self,
        profile: Profile,
        drafter: str,
        rule: str,
        greedy: bool,
        batch: int,
        forwards: Forwards,
    ) -> None:
        """Raises StoreError for a drafter, rule or batch that the profile does not price."""
        self.profile, self.batch, self._forwards = profile, batch, forwards
        self._drafting = (
            profile.drafting(drafter, batch, greedy) if drafter != "none" else Drafting(cycle=0)
        )
        self._accept = profile.accepting(rule, greedy, drafter.endswith(DRAWN))
        profile.forward(np.ones(1, int), batch)

    def cycles(self, sample: Sample) -> NDArray[np.float64]:
        """Seconds of each cycle of an answer. Raises StoreError for an answer whose nodes were not
        recorded."""
        if len(sample.nodes) != len(sample.committed):
            raise StoreError(
                f"prompt {sample.id}: its engine does not record the nodes of each cycle, which a "
                "cost profile needs; decode with engine=native"
            )
        nodes, rest = np.array(sample.nodes, dtype=int), self.profile.rest
        drafting = {
            levels: self._drafting.seconds(self._forwards(levels)) for levels in set(sample.levels)
        }
        shared = (
            self.profile.forward(nodes + 1, self.batch)
            + self._accept.cycle
            + rest.cycle
            + np.array([drafting[levels] for levels in sample.levels])
        )
        return np.asarray(shared / self.batch + (self._accept.node + rest.node) * nodes)

    def prefill(self, sample: Sample) -> float:
        """Seconds of reading the prompt."""
        tokens = sample.prompt_tokens
        return (
            self.profile.reading(tokens, self.batch) + self._drafting.reading(tokens) / self.batch
        )

    def run(self, sample: Sample) -> TimedRun:
        """What the clock would have said of an answer."""
        return TimedRun(
            len(sample.output_ids),
            len(sample.committed),
            self.prefill(sample),
            float(self.cycles(sample).sum()),
        )


def plain_clock(profile: Profile, greedy: bool, batch: int) -> Clock:
    """The clock of autoregressive decoding. Raises StoreError."""
    return Clock(profile, "none", LOSSLESS, greedy, batch, lambda levels: ())


def modelled(clock: Clock, base: Clock, pair: Compared) -> Timed:
    """The prompt as if it had been timed on the machine of the clocks' profile, its baseline beside
    it."""
    is_baseline = pair.sample is pair.baseline
    return Timed(
        "modelled",
        clock.profile.title,
        clock.profile.title,
        id=pair.id,
        own=clock.run(pair.sample),
        baseline=None if is_baseline else base.run(pair.baseline),
    )


def stated(profile: Profile) -> str:
    """What a caption says of numbers under a profile."""
    equals = {**profile.sampled.priced_as, **profile.costs(greedy=True).priced_as}
    text = f"modelled for {profile.title}, from the cycles recorded here, so that τ is this model's"
    named = ", ".join(f"{rule} as {other}" for rule, other in equals.items())
    return f"{text}; decisions priced as another rule's: {named}" if named else text
