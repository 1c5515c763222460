"""What every kind of head in training has in common: its recipe, its loss a draft step, and what is measured of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from methods.training.heads.frozen_target import FrozenTarget, TargetStates
from methods.training.heads.slots import Slots
from methods.training.packing import Batch


class HeadRecipe(BaseModel):
    """Schedule of one head; every field is explained in conf/train_heads.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")
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
    compile: bool = False

    @property
    def rows(self) -> int:
        return max(1, self.batch_tokens // self.row_tokens)

    @property
    def updates(self) -> int:
        return max(1, self.tokens // (self.rows * self.row_tokens))

    def rate(self, update: int) -> float:
        """Warm up, stay, then fall linearly to zero over the last `decay` of all updates."""
        return min((update + 1) / max(1, self.warmup), 1.0, (self.updates - update) / (self.decay * self.updates))


@dataclass(slots=True)
class DraftStep:
    """One draft step over all slots: `loss`, its weighted mean; `rank` [R, M] int64, how many tokens the head puts
    before the target's most likely one (0: they agree; the vocabulary's size where the head lacks that token)."""

    loss: Tensor
    rank: Tensor


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of `values` [R, M] under `weight` [R, M]; 0 where nothing weighs."""
    return (values * weight).sum() / weight.sum().clamp(min=1e-6)


def soft_cross_entropy(logits: Tensor, p: Tensor) -> Tensor:
    """-sum p ln q for logits of q and probabilities p, both [R, M, V] -> [R, M]."""
    return -(p * logits.float().log_softmax(-1)).sum(-1)


@torch.no_grad()
def rank_of(logits: Tensor, best: Tensor) -> Tensor:
    """How many of logits [R, M, V] are larger than that of token best [R, M]; V where best is -1."""
    value = logits.gather(-1, best.clamp(min=0)[..., None])
    return torch.where(best < 0, logits.shape[-1], (logits > value).sum(-1))


@torch.no_grad()
def identity(layer: nn.Module) -> None:
    """Make a decoder layer pass on its residual stream alone, to begin with."""
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()


class HeadTrainer(ABC):
    """One kind of head, being trained for one target.

    head     its parameters; those that do not require gradients are the target's own.
    layers   HF hidden_states indices of the target that it reads (none: the final state alone).
    """

    Recipe: ClassVar[type[HeadRecipe]]
    head: nn.Module
    layers: tuple[int, ...] = ()

    def __init__(self, recipe: HeadRecipe, frozen_target: FrozenTarget):
        self.recipe, self.frozen_target = recipe, frozen_target

    def prepare(self, batches: Callable[[int], Batch]) -> None:  # noqa: B027
        """What has to be known of the data before training: batches(i) is the batch of update i."""

    @abstractmethod
    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        """Unroll the head from every slot, exactly as it drafts."""

    @abstractmethod
    def vocabulary_parameters(self) -> list[nn.Parameter]:
        """The matrices with an entry a token: embeddings and LM heads. Muon is not for these."""

    @abstractmethod
    def export(self, folder: Path, *, pickled: bool = False) -> None:
        """Write the official checkpoint format in bfloat16, as safetensors or `pickled` as torch.save does."""

    def run(self, function: Callable, *args):
        """Call `function`; where the recipe says so, forget its insides and compute them again in the backward pass."""
        if self.recipe.checkpointing and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def objective(self, batch: Batch, states: TargetStates, slots: Slots,
                  noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """The sum over draft steps k of step_decay^k x loss, and all ranks [S, R, M]."""
        found = list(self.steps(batch, states, slots, noise))
        loss = sum(self.recipe.step_decay ** k * step.loss for k, step in enumerate(found))
        return loss, torch.stack([step.rank for step in found])

