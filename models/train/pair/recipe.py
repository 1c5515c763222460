"""Sizes and schedule of one model of the embedded pair."""

from __future__ import annotations

from itertools import accumulate

from pydantic import Field, PositiveInt, model_validator

from bench.config.section import Section


class Stage(Section):
    """One depth of a model that grows while it trains.

    layers        decoder layers during this stage.
    tokens        training tokens of the stage.
    batch_tokens  tokens an update.
    exercises     share of recall exercises among the conversations.
    """

    layers: PositiveInt
    tokens: PositiveInt
    batch_tokens: PositiveInt = 4096
    exercises: float = Field(0.0, ge=0, le=1)


class Recipe(Section):
    """Sizes and schedule of one model; conf/train_pair.yaml explains every field."""

    start: str | None = None
    hidden: PositiveInt
    intermediate: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    growth: list[Stage] = Field(min_length=1)
    exit_layers: list[PositiveInt]
    exit_weight: float
    row_tokens: PositiveInt
    lr: float
    adam_lr: float
    warmup: int
    decay: float = 0.5
    prompt_weight: float
    save_every: PositiveInt
    compile: bool = True
    autocast: bool | None = None

    @model_validator(mode="after")
    def _exits_are_inside(self) -> Recipe:
        depth = self.growth[-1].layers
        if any(e >= depth for e in self.exit_layers):
            raise ValueError(
                f"exit_layers={self.exit_layers}: an early exit must come before the last of "
                f"{depth} layers"
            )
        return self

    def plan(self) -> list[tuple[Stage, int]]:
        """Each stage with the first step after it."""
        ends = accumulate(stage.tokens // stage.batch_tokens for stage in self.growth)
        return list(zip(self.growth, ends, strict=True))

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.plan()[-1][1]

    def rate(self, step: int) -> float:
        """Learning-rate factor: warm up, stay, then fall linearly to zero over the last `decay` of
        all steps."""
        return min((step + 1) / self.warmup, 1.0, (self.steps - step) / (self.decay * self.steps))
