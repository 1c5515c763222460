"""EAGLE-1/2 heads: regression of the target's next final state, and its distribution through the target's LM head.

Source: Li et al. 2024, "EAGLE", section 4.2, and the released code: SmoothL1 on the feature (weight 1), soft
cross-entropy (weight 0.1), uniform noise on the input features. HASS (Zhang et al. 2024) unrolls 3 steps and adds the
cross-entropy over the target's top k (k = 10)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.heads.eagle import EagleHead
from methods.heads.layer import head_config
from methods.training.heads.base import (
    WEIGHTS,
    DraftStep,
    FrozenTarget,
    HeadTrainer,
    Slots,
    TargetStates,
    layer_settings,
    mean,
    rank_of,
    soft_cross_entropy,
    start_as_identity,
    unroll,
    write_checkpoint,
)
from methods.training.heads.recipes import EagleRecipe
from methods.training.packing import Batch


class EagleTrainer(HeadTrainer[EagleRecipe, EagleHead]):
    """EAGLE, EAGLE-2 and HASS heads. They read no `layers`: the feature is the target's final state."""

    def __init__(self, recipe: EagleRecipe, frozen_target: FrozenTarget) -> None:
        super().__init__(recipe, frozen_target)
        self.settings = layer_settings(frozen_target.config) | recipe.layer
        self.head = EagleHead(head_config(self.settings)).to(frozen_target.model.device)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Copy and freeze the target's embedding; make the head the identity on the feature (block expansion: both
        output projections are zero)."""
        head, size = self.head, self.head.config.hidden_size
        self.embedding.weight.copy_(self.frozen_target.target.embedding)
        self.embedding.requires_grad_(False)
        start_as_identity(head.layers[0])
        head.fc.weight.normal_(0, 0.5 * size ** -0.5)
        head.fc.weight[:, size:] += torch.eye(size, device=head.fc.weight.device)
        head.fc.bias.zero_()

    @property
    def embedding(self) -> nn.Embedding:
        """The head's own embedding, which training heads always have."""
        assert self.head.embed_tokens is not None
        return self.head.embed_tokens

    def vocabulary_parameters(self) -> list[Tensor]:
        return [self.embedding.weight]

    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        head = self.head
        features = states.hidden.to(head.fc.weight.dtype)
        if self.recipe.noise and torch.is_grad_enabled():
            uniform = torch.rand(features.shape, generator=noise).to(features) - 0.5
            features = features + self.recipe.noise * uniform
        outs = unroll(head, self.embedding, head.fuse(features), batch, slots, self.recipe.steps, self.run)
        for k, hidden in enumerate(outs):
            yield DraftStep(*self.run(self._loss, hidden, slots.after(states.hidden, 1 + k), slots.weight[k]))

    def _loss(self, hidden: Tensor, teacher: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        logits = self.frozen_target.target.head(hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
            p = truth.softmax(-1)
        distance = F.smooth_l1_loss(hidden.float(), teacher.float(), reduction="none").mean(-1)
        each = recipe.feature_weight * distance + recipe.token_weight * soft_cross_entropy(logits, p)
        if recipe.top_weight:
            top = p.topk(recipe.top)
            q = logits.log_softmax(-1).gather(-1, top.indices)
            each = each - recipe.top_weight * (top.values * q).sum(-1)
        return mean(each, weight), rank_of(logits, truth.argmax(-1))

    def export(self, folder: Path, *, pickled: bool = False) -> None:
        settings = {"architectures": ["LlamaForCausalLM"], "bias": True} | self.settings
        write_checkpoint(folder, self.head.state_dict(), settings, WEIGHTS[pickled])
