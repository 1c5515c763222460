"""A cost profile computed from a data sheet: bytes ÷ bandwidth or operations ÷ peak, whichever takes longer.

A forward over t tokens of each of B rows reads the weights once and every row's cached context, and computes t · B
tokens:

    max((weights + B · context · cached) ÷ (bandwidth · share), t · B · operations ÷ (peak · share)) ÷ devices

What devices send one another is not in it. What speculation costs beside the forwards are constants of their own, of a
cycle and of each draft step."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from results.metrics.cost import ANY, Costs, Drafting, Frozen, Line, Linear, Profile, Rest

TOKENS, BATCHES = tuple(1 << power for power in range(11)), (1, 4, 16, 64)
"""A prompt of more than a few hundred tokens computes for longer than it reads weights."""
Bytes = Annotated[float, Field(ge=1e5, le=1e14)]
Operations = Annotated[float, Field(ge=1e5, le=1e14)]
Share = Annotated[float, Field(gt=0, le=1)]


class RooflineUnits(Frozen):
    """The units of a data sheet's numbers and of its models."""

    time: Literal["s"]
    memory: Literal["bytes"]
    bandwidth: Literal["bytes/s"]
    peak: Literal["operations/s"]


class Shape(Frozen):
    """A model as its forward meets the machine.

    weights     bytes that a forward reads, the input embedding left out.
    operations  floating-point operations of one token: two a weight.
    cached      bytes of keys and values of one token of context.
    """

    weights: Bytes
    operations: Operations
    cached: float = Field(default=0.0, ge=0, le=1e9)


class Roofline(Frozen):
    """A machine and the models on it.

    units             of all numbers.
    title, sources, beside  as `Profile` has them.
    bandwidth         bytes per second of one device, and the share of it that decoding reaches.
    peak              operations per second of one device, and the share that large products reach.
    devices           that divide each model among them.
    context           tokens of the cached context.
    target, drafts    the models; a drafter without a model of its own costs nothing.
    logits            bytes of one row of logits.
    passes            how often acceptance reads a row.
    speculation       seconds that a draft adds to a cycle beside the forwards: launches, the host, waiting.
    step              seconds that each forward of the drafter's model adds to them.
    """

    units: RooflineUnits
    title: Line
    sources: list[Line] = Field(min_length=1)
    bandwidth: float = Field(ge=1e9, le=1e15)
    bandwidth_share: Share
    peak: float = Field(ge=1e9, le=1e18)
    peak_share: Share
    devices: int = Field(default=1, ge=1, le=1 << 16)
    context: int = Field(ge=1, le=1 << 24)
    target: Shape
    drafts: dict[str, Shape]
    logits: float = Field(ge=1, le=1e9)
    passes: float = Field(gt=0, le=1000)
    speculation: float = Field(ge=0, le=10)
    step: float = Field(default=0.0, ge=0, le=10)
    beside: tuple[Line, ...] = ()

    def profile(self) -> Profile:
        """The profile at every batch."""
        node = Linear(cycle=0.0, node=self.passes * self.logits / (self.bandwidth * self.bandwidth_share))
        free = {batch: Drafting(cycle=self.speculation) for batch in BATCHES}
        drafts = {name: {batch: Drafting(cycle=self.speculation, forwards=self._forwards(shape, batch))
                         for batch in BATCHES} for name, shape in self.drafts.items()}
        return Profile(
            title=self.title, obtained="roofline", sources=self.sources, beside=self.beside,
            rest=Rest(cycle=0.0, step=self.step),
            target={batch: self._forwards(self.target, batch) for batch in BATCHES},
            sampled=Costs(drafts={**drafts, **dict.fromkeys(("prompt_lookup", "suffix", "lookahead"), free)},
                          accept={ANY: node}))

    def _forwards(self, shape: Shape, batch: int) -> dict[int, float]:
        """Tokens of each row -> seconds of a forward."""
        bytes_read = shape.weights + batch * self.context * shape.cached
        reading = bytes_read / (self.bandwidth * self.bandwidth_share * self.devices)
        computing = batch * shape.operations / (self.peak * self.peak_share * self.devices)
        return {tokens: max(reading, tokens * computing) for tokens in TOKENS}
