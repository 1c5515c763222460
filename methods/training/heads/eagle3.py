"""EAGLE-3 heads: soft cross-entropy against the target over a reduced vocabulary, unrolled over several draft steps.

Source: Li et al. 2025, "EAGLE-3", section 3. Loss of the released training code: weights 0.8^k over 7 steps; the
target's distribution renormalised over the draft vocabulary; no loss where
its most likely token lies outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from methods.engine.source import ModelError
from methods.heads.eagle3 import TARGET_HEAD, Eagle3Head
from methods.heads.eagle3_config import form_of
from methods.heads.layer import head_config
from methods.training.heads.base import (
    WEIGHTS,
    DraftStep,
    FrozenTarget,
    HeadTrainer,
    Slots,
    TargetStates,
    layer_settings,
    rank_of,
    soft_cross_entropy,
    start_as_identity,
    unroll,
    write_checkpoint,
)
from methods.training.heads.recipes import Eagle3Recipe
from methods.training.packing import Batch


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
            raise ModelError("layer: a head is trained on fused features and without a window; leave out "
                             "use_aux_hidden_state and sliding_window")
        self.layers = form.features
        config_of_head = head_config(self.settings, num_hidden_layers=form.layers)
        self.head = Eagle3Head(config_of_head, form, target_size=config.hidden_size,
                               draft_vocab=self.settings["draft_vocab_size"]).to(frozen_target.model.device)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Make the head the identity on the highest feature, where the sizes allow it (block expansion: both output
        projections are zero)."""
        head, size = self.head, self.head.config.hidden_size
        for layer in (head.midlayer, *head.deeper):
            start_as_identity(layer)
        if head.fc is not None and size == self.frozen_target.config.hidden_size:
            head.fc.weight.normal_(0, 0.5 * size ** -0.5)
            head.fc.weight[:, -size:] += torch.eye(size, device=head.fc.weight.device)
            head.norm.weight.copy_(self.frozen_target.final_norm)

    def prepare(self, batches: Callable[[int], Batch]) -> None:
        """Choose the draft vocabulary (the most frequent tokens of answers); copy its rows of the target's LM head."""
        head, embedding = self.head, self.frozen_target.model.get_output_embeddings().weight
        ids = torch.arange(head.config.vocab_size)
        if head.d2t is not None and head.t2d is not None:
            counts = torch.zeros(head.config.vocab_size, dtype=torch.int64)
            for number in range(self.recipe.vocab_batches):
                batch = batches(number)
                counts += torch.bincount(batch.input_ids[batch.weight > 0], minlength=len(counts)).cpu()
            ids = most_frequent(counts, len(head.d2t))
            head.d2t.copy_(ids - torch.arange(len(ids)))
            head.t2d.fill_(False)[ids.to(head.t2d.device)] = True
        if head.lm_head.weight.shape[1] == embedding.shape[1]:
            with torch.no_grad():
                head.lm_head.weight.copy_(embedding[ids.to(embedding.device)])
        head.lm_head.requires_grad_(self.recipe.own_head)

    def vocabulary_parameters(self) -> list[Tensor]:
        return [self.head.lm_head.weight]

    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        head, features = self.head, states.features
        assert features is not None, "the trainer's `layers` ask for them"
        ids = None if head.d2t is None else torch.arange(len(head.d2t), device=head.d2t.device) + head.d2t
        embed = self.frozen_target.model.get_input_embeddings()
        dtype = head.norm.weight.dtype
        outs = unroll(head, lambda tokens: embed(tokens).to(dtype), head.fuse(features.to(dtype)), batch, slots,
                      self.recipe.steps, self.run)
        for k, hidden in enumerate(outs):
            teacher = slots.after(states.hidden, 1 + k)
            yield DraftStep(*self.run(self._loss, hidden, teacher, slots.weight[k], ids))

    def _loss(self, hidden: Tensor, teacher: Tensor, weight: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        logits = self.head.logits(hidden)
        with torch.no_grad():
            truth = self.frozen_target.target.head(teacher)
            best = truth.argmax(-1)
            if ids is not None and self.head.t2d is not None:
                truth = truth[..., ids]
                inside = self.head.t2d[best]
                best = torch.where(inside, torch.searchsorted(ids, best), -1)
            p = truth.softmax(-1)
        loss = (soft_cross_entropy(logits, p) * (best >= 0) * weight).sum() / weight.sum().clamp(min=1e-6)
        return loss, rank_of(logits, best)

    def export(self, folder: Path, *, pickled: bool = False) -> None:
        settings = {"architectures": ["LlamaForCausalLMEagle3"]} | self.settings
        tensors = self.head.state_dict()
        if not self.recipe.own_head:
            settings[TARGET_HEAD] = True
            del tensors["lm_head.weight"]
        write_checkpoint(folder, tensors, settings, WEIGHTS[pickled])
