"""The kinds of heads that can be trained, by the role they take in a pair (`TRAINERS`).

EAGLE, EAGLE-2 and HASS: regression of the target's next final state, and its distribution through
the target's LM head. Source: Li et al. 2024, "EAGLE", section 4.2, and the released code: SmoothL1
on the feature (weight 1), soft cross-entropy (weight 0.1), uniform noise on the input features.
HASS (Zhang et al. 2024) unrolls 3 steps and adds the cross-entropy over the target's top k (k =
10).

EAGLE-3: soft cross-entropy against the target over a reduced vocabulary, unrolled over several
draft steps. Source: Li et al. 2025, "EAGLE-3", section 3. Loss of the released training code:
weights 0.8^k over 7 steps; the target's distribution renormalised over the draft vocabulary; no
loss where its most likely token lies outside.

Medusa-1: cross-entropy of each later token, weighted 0.8^k for head k. Source: Cai et al. 2024,
"Medusa", section 2.2.1. The paper's labels are the conversation's tokens. The target's distribution
of those tokens as labels (self-distillation, section 2.3.2) teaches the same with less noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.source import ModelError
from methods.heads.eagle import TARGET_HEAD, Eagle3Head, EagleHead, head_config
from methods.heads.eagle3_config import form_of
from methods.heads.medusa import FILES, MedusaHeads
from models.train.heads.base import (
    FrozenTarget,
    HeadRecipe,
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
from models.train.packing import PackedBatch

Steps = Iterator[tuple[Tensor, Tensor]]
"""Loss and ranks of each draft step, as `HeadTrainer.steps` gives them."""


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


class EagleTrainer(HeadTrainer[EagleRecipe, EagleHead]):
    """EAGLE, EAGLE-2 and HASS heads. They read no `layers`: the feature is the target's final
    state."""

    def __init__(self, recipe: EagleRecipe, frozen_target: FrozenTarget) -> None:
        super().__init__(recipe, frozen_target)
        self.settings = layer_settings(frozen_target.config) | recipe.layer
        self.head = EagleHead(head_config(self.settings)).to(frozen_target.model.device)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Copy and freeze the target's embedding; make the head the identity on the feature (block
        expansion: both output projections are zero)."""
        head, size = self.head, self.head.config.hidden_size
        self.embedding.weight.copy_(self.frozen_target.target.embedding)
        self.embedding.requires_grad_(False)
        start_as_identity(head.layers[0])
        head.fc.weight.normal_(0, 0.5 * size**-0.5)
        head.fc.weight[:, size:] += torch.eye(size, device=head.fc.weight.device)
        head.fc.bias.zero_()

    @property
    def embedding(self) -> nn.Embedding:
        """The head's own embedding, which training heads always have."""
        assert self.head.embed_tokens is not None
        return self.head.embed_tokens

    def vocabulary_parameters(self) -> list[Tensor]:
        return [self.embedding.weight]

    def steps(
        self, batch: PackedBatch, states: TargetStates, slots: Slots, noise: torch.Generator
    ) -> Steps:
        head = self.head
        features = states.hidden.to(head.fc.weight.dtype)
        if self.recipe.noise and torch.is_grad_enabled():
            uniform = torch.rand(features.shape, generator=noise).to(features) - 0.5
            features = features + self.recipe.noise * uniform
        outs = unroll(
            head, self.embedding, head.fuse(features), batch, slots, self.recipe.steps, self.run
        )
        for k, hidden in enumerate(outs):
            yield self.run(self._loss, hidden, slots.after(states.hidden, 1 + k), slots.weight[k])

    def _loss(self, hidden: Tensor, teacher: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        recipe = self.recipe
        logits = self.frozen_target.target.head(hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
            p = truth.softmax(-1)
        distance = F.smooth_l1_loss(hidden.float(), teacher.float(), reduction="none").mean(-1)
        each = recipe.feature_weight * distance + recipe.token_weight * soft_cross_entropy(
            logits, p
        )
        if recipe.top_weight:
            top = p.topk(recipe.top)
            q = logits.log_softmax(-1).gather(-1, top.indices)
            each = each - recipe.top_weight * (top.values * q).sum(-1)
        return mean(each, weight), rank_of(logits, truth.argmax(-1))

    def export(self, folder: Path) -> None:
        settings = {"architectures": ["LlamaForCausalLM"], "bias": True} | self.settings
        write_checkpoint(folder, self.head.state_dict(), settings)


def most_frequent(counts: Tensor, size: int) -> Tensor:
    """The `size` most frequent token ids in counts [V], ascending; ties go to the smaller id."""
    return counts.argsort(descending=True, stable=True)[:size].sort().values


class Eagle3Trainer(HeadTrainer[Eagle3Recipe, Eagle3Head]):
    """EAGLE-3 heads."""

    def __init__(self, recipe: Eagle3Recipe, frozen_target: FrozenTarget) -> None:
        super().__init__(recipe, frozen_target)
        config = frozen_target.config
        self.settings = layer_settings(config) | recipe.layer
        self.settings["draft_vocab_size"] = min(recipe.draft_vocab, config.vocab_size)
        form = form_of(frozen_target.target.source, self.settings, config)
        if not form.fuses or form.window is not None:
            raise ModelError(
                "layer: a head is trained on fused features and without a window; leave out "
                "use_aux_hidden_state and sliding_window"
            )
        self.layers = form.features
        config_of_head = head_config(self.settings, num_hidden_layers=form.layers)
        self.head = Eagle3Head(
            config_of_head,
            form,
            target_size=config.hidden_size,
            draft_vocab=self.settings["draft_vocab_size"],
        ).to(frozen_target.model.device)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Make the head the identity on the highest feature, where the sizes allow it (block
        expansion: both output projections are zero)."""
        head, size = self.head, self.head.config.hidden_size
        for layer in head.stack:
            start_as_identity(layer)
        if head.fc is not None and size == self.frozen_target.config.hidden_size:
            head.fc.weight.normal_(0, 0.5 * size**-0.5)
            head.fc.weight[:, -size:] += torch.eye(size, device=head.fc.weight.device)
            head.norm.weight.copy_(self.frozen_target.final_norm)

    def prepare(self, batches: Callable[[int], PackedBatch]) -> None:
        """Choose the draft vocabulary (the most frequent tokens of answers); copy its rows of the
        target's LM head."""
        head, embedding = self.head, self.frozen_target.model.get_output_embeddings().weight
        ids = torch.arange(head.config.vocab_size)
        if head.d2t is not None and head.t2d is not None:
            counts = torch.zeros(head.config.vocab_size, dtype=torch.int64)
            for number in range(self.recipe.vocab_batches):
                batch = batches(number)
                counts += torch.bincount(
                    batch.input_ids[batch.weight > 0], minlength=len(counts)
                ).cpu()
            ids = most_frequent(counts, len(head.d2t))
            head.d2t.copy_(ids - torch.arange(len(ids)))
            head.t2d.fill_(False)[ids.to(head.t2d.device)] = True
        if head.lm_head.weight.shape[1] == embedding.shape[1]:
            with torch.no_grad():
                head.lm_head.weight.copy_(embedding[ids.to(embedding.device)])
        head.lm_head.requires_grad_(self.recipe.own_head)

    def vocabulary_parameters(self) -> list[Tensor]:
        return [self.head.lm_head.weight]

    def steps(
        self, batch: PackedBatch, states: TargetStates, slots: Slots, noise: torch.Generator
    ) -> Steps:
        head, features = self.head, states.features
        assert features is not None, "the trainer's `layers` ask for them"
        ids = (
            None
            if head.d2t is None
            else torch.arange(len(head.d2t), device=head.d2t.device) + head.d2t
        )
        embed = self.frozen_target.model.get_input_embeddings()
        dtype = head.norm.weight.dtype
        outs = unroll(
            head,
            lambda tokens: embed(tokens).to(dtype),
            head.fuse(features.to(dtype)),
            batch,
            slots,
            self.recipe.steps,
            self.run,
        )
        for k, hidden in enumerate(outs):
            teacher = slots.after(states.hidden, 1 + k)
            yield self.run(self._loss, hidden, teacher, slots.weight[k], ids)

    def _loss(
        self, hidden: Tensor, teacher: Tensor, weight: Tensor, ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.head.logits(hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
            best = truth.argmax(-1)
            if ids is not None and self.head.t2d is not None:
                truth = truth[..., ids]
                inside = self.head.t2d[best]
                best = torch.where(inside, torch.searchsorted(ids, best), -1)
            p = truth.softmax(-1)
        loss = (soft_cross_entropy(logits, p) * (best >= 0) * weight).sum() / weight.sum().clamp(
            min=1e-6
        )
        return loss, rank_of(logits, best)

    def export(self, folder: Path) -> None:
        settings = {"architectures": ["LlamaForCausalLMEagle3"]} | self.settings
        tensors = self.head.state_dict()
        if not self.recipe.own_head:
            settings[TARGET_HEAD] = True
            del tensors["lm_head.weight"]
        write_checkpoint(folder, tensors, settings)


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

    def steps(
        self, batch: PackedBatch, states: TargetStates, slots: Slots, noise: torch.Generator
    ) -> Steps:
        hidden = slots.after(states.hidden, 0).to(self.vocabulary_parameters()[0].dtype)
        for k in range(self.recipe.steps):
            tokens = slots.after(batch.input_ids, 2 + k)
            teacher = slots.after(states.hidden, 1 + k)
            yield self.run(self._loss, k, hidden, teacher, tokens, slots.weight[k])

    def _loss(
        self, k: int, hidden: Tensor, teacher: Tensor, tokens: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = self.head[k](hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
        if self.recipe.labels == "target":
            each = soft_cross_entropy(logits, truth.softmax(-1))
        else:
            each = -logits.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        return mean(each, weight), rank_of(logits, truth.argmax(-1))

    def export(self, folder: Path) -> None:
        settings = {
            "medusa_num_heads": self.recipe.steps,
            "medusa_num_layers": self.recipe.blocks,
            "base_model_name_or_path": self.frozen_target.target.source,
            "hidden_size": self.head.size,
            "vocab_size": self.head.vocab,
            "torch_dtype": "bfloat16",
        }
        write_checkpoint(folder, self.head.state_dict(), settings, FILES[0])


TRAINERS: Mapping[str, type[HeadTrainer[Any, Any]]] = {
    "eagle3": Eagle3Trainer,
    "eagle": EagleTrainer,
    "hass": EagleTrainer,
    "medusa": MedusaTrainer,
}
"""The kinds of heads that can be trained, by the role they take in a pair."""
RECIPES: Mapping[str, type[HeadRecipe]] = {
    "eagle3": Eagle3Recipe,
    "eagle": EagleRecipe,
    "hass": EagleRecipe,
    "medusa": MedusaRecipe,
}
"""Role of the head in a pair -> its recipe."""
