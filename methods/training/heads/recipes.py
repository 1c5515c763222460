"""Schedules of head training; conf/train_heads.yaml explains every field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt


class HeadRecipe(BaseModel):
    """What the recipes of all kinds of heads share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    tokens: PositiveInt
    batch_tokens: PositiveInt
    row_tokens: PositiveInt
    slots: PositiveInt
    steps: PositiveInt
    step_decay: PositiveFloat
    optimiser: Literal["muon", "adamw"]
    lr: PositiveFloat
    adam_lr: PositiveFloat
    warmup: NonNegativeInt
    decay: float = Field(gt=0, le=1)
    clip: PositiveFloat
    save_every: PositiveInt
    checkpointing: bool = False

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return max(1, self.batch_tokens // self.row_tokens)

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return max(1, self.tokens // (self.rows * self.row_tokens))

    def rate(self, update: int) -> float:
        """Learning-rate factor: warm up, stay, then fall linearly to zero over the last `decay` of all updates."""
        return min((update + 1) / max(1, self.warmup), 1.0, (self.updates - update) / (self.decay * self.updates))


class EagleRecipe(HeadRecipe):
    """EAGLE, EAGLE-2 and HASS."""

    feature_weight: NonNegativeFloat
    token_weight: NonNegativeFloat
    top_weight: NonNegativeFloat
    top: NonNegativeInt
    noise: NonNegativeFloat
    layer: dict[str, int] = Field(default_factory=dict)


class Eagle3Recipe(HeadRecipe):
    """EAGLE-3."""

    draft_vocab: PositiveInt
    vocab_batches: PositiveInt
    own_head: bool
    layer: dict[str, bool | int] = Field(default_factory=dict)


class MedusaRecipe(HeadRecipe):
    """Medusa; `steps` is the number of heads."""

    blocks: PositiveInt
    labels: Literal["tokens", "target"]


class CutRecipe(HeadRecipe):
    """A draft model cut out of the target; `steps` is 1."""

    target_layers: PositiveInt
    own_layers: PositiveInt


RECIPES: Mapping[str, type[HeadRecipe]] = {
    "eagle3": Eagle3Recipe, "eagle": EagleRecipe, "hass": EagleRecipe, "medusa": MedusaRecipe,
    "draft": CutRecipe}
"""Role of the head in a pair -> its recipe."""
