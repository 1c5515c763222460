"""What every kind of head in training shares: its losses draft step by draft step, and how they are summed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from methods.training.heads.frozen_target import FrozenTarget, TargetStates
from methods.training.heads.recipes import HeadRecipe
from methods.training.heads.slots import Slots
from methods.training.packing import Batch

Recipe = TypeVar("Recipe", bound=HeadRecipe)
Module = TypeVar("Module", bound=nn.Module)


@dataclass(slots=True)
class DraftStep:
    """One draft step over all slots.

    loss  [] weighted mean over the slots.
    rank  [R, M] int64, how many tokens the head ranks above the target's most likely one (0: they agree; the head's
          vocabulary size where it lacks that token).
    """

    loss: Tensor
    rank: Tensor


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of `values` [R, M] under `weight` [R, M]; 0 where all weights are 0."""
    return (values * weight).sum() / weight.sum().clamp(min=1e-6)


def soft_cross_entropy(logits: Tensor, p: Tensor) -> Tensor:
    """-sum p ln q for logits of q and probabilities p, both [R, M, V] -> [R, M]."""
    return -(p * logits.float().log_softmax(-1)).sum(-1)


@torch.no_grad()
def rank_of(logits: Tensor, best: Tensor) -> Tensor:
    """How many of logits [R, M, V] exceed that of token best [R, M]; V where best is -1."""
    value = logits.gather(-1, best.clamp(min=0)[..., None])
    return torch.where(best < 0, logits.shape[-1], (logits > value).sum(-1))


@torch.no_grad()
def start_as_identity(layer: Any) -> None:
    """Zero a decoder layer's output projections: it starts by passing on its residual stream (block expansion)."""
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()


class HeadTrainer(ABC, Generic[Recipe, Module]):
    """One kind of head, in training for one target.

    recipe         its schedule.
    frozen_target  the target, its teacher.
    head           its parameters; those without gradients are the target's own.
    layers         HF hidden_states indices of the target that it reads (none: the final state alone).
    """

    head: Module
    layers: tuple[int, ...] = ()

    def __init__(self, recipe: Recipe, frozen_target: FrozenTarget) -> None:
        self.recipe, self.frozen_target = recipe, frozen_target

    def prepare(self, batches: Callable[[int], Batch]) -> None:
        """Derive from the data what must be known before training; `batches(i)` is the batch of update i."""

    @abstractmethod
    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        """Unroll the head from every slot, exactly as it drafts."""

    @abstractmethod
    def vocabulary_parameters(self) -> list[Tensor]:
        """The matrices with an entry a token (embeddings, LM heads), which Muon does not train."""

    @abstractmethod
    def export(self, folder: Path, *, pickled: bool = False) -> None:
        """Write the official checkpoint format in bfloat16, as safetensors or `pickled` as torch.save does."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function`; under gradient checkpointing its activations are recomputed in the backward pass."""
        if self.recipe.checkpointing and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def objective(self, batch: Batch, states: TargetStates, slots: Slots,
                  noise: torch.Generator) -> tuple[Tensor, Tensor]:
        """The sum over draft steps k of step_decay^k × loss, and all ranks [S, R, M]."""
        steps = list(self.steps(batch, states, slots, noise))
        total = steps[0].loss
        for k, step in enumerate(steps[1:], start=1):
            total = total + self.recipe.step_decay ** k * step.loss
        return total, torch.stack([step.rank for step in steps])
