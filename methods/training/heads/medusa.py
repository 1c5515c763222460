"""Medusa heads on a frozen target (Medusa-1): cross-entropy of each later token, weighted 0.8^k for head k.

Source: Cai et al. 2024, "Medusa", section 2.2.1. The paper's labels are the conversation's tokens. The target's
distribution of those tokens as labels (self-distillation, section 2.3.2) teaches the same with less noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from methods.heads.medusa import FILES, MedusaHeads
from methods.training.heads.base import (
    DraftStep,
    FrozenTarget,
    HeadTrainer,
    Slots,
    TargetStates,
    mean,
    rank_of,
    soft_cross_entropy,
    write_checkpoint,
)
from methods.training.heads.recipes import MedusaRecipe
from methods.training.packing import Batch


class MedusaTrainer(HeadTrainer[MedusaRecipe, MedusaHeads]):
    """Medusa heads."""

    def __init__(self, recipe: MedusaRecipe, frozen_target: FrozenTarget) -> None:
        super().__init__(recipe, frozen_target)
        lm_head = frozen_target.model.get_output_embeddings().weight.detach()
        self.head = MedusaHeads(recipe.steps, lm_head.shape[1], lm_head.shape[0], recipe.blocks)
        self.head.start_from(lm_head).to(lm_head.device)

    def vocabulary_parameters(self) -> list[Tensor]:
        heads: Any = self.head
        return [head[-1].weight for head in heads]

    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        hidden = slots.after(states.hidden, 0).to(self.vocabulary_parameters()[0].dtype)
        for k in range(self.recipe.steps):
            tokens = slots.after(batch.input_ids, 2 + k)
            teacher = slots.after(states.hidden, 1 + k)
            yield DraftStep(*self.run(self._loss, k, hidden, teacher, tokens, slots.weight[k]))

    def _loss(self, k: int, hidden: Tensor, teacher: Tensor, tokens: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head[k](hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
        if self.recipe.labels == "target":
            each = soft_cross_entropy(logits, truth.softmax(-1))
        else:
            each = -logits.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        return mean(each, weight), rank_of(logits, truth.argmax(-1))

    def export(self, folder: Path, *, pickled: bool = False) -> None:
        settings = {"medusa_num_heads": self.recipe.steps, "medusa_num_layers": self.recipe.blocks,
                    "base_model_name_or_path": self.frozen_target.target.source,
                    "hidden_size": self.head.size, "vocab_size": self.head.vocab, "torch_dtype": "bfloat16"}
        write_checkpoint(folder, self.head.state_dict(), settings, FILES[pickled])
