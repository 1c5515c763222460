"""A draft model cut out of the target, distilled from it (methods/engine/cut.py).

The first layers stay the target's own, so their output is read off the target's forward; only the layers behind them
and the final norm are trained, against the target's whole distribution (forward KL)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from methods.engine.cut import own_part, settings_of
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
from methods.training.heads.recipes import CutRecipe
from methods.training.packing import Batch


class CutTrainer(HeadTrainer[CutRecipe, nn.Module]):
    """Draft models cut out of the target. A draft step reads true tokens only, so one step is all there is."""

    def __init__(self, recipe: CutRecipe, frozen_target: FrozenTarget) -> None:
        super().__init__(recipe, frozen_target)
        target = frozen_target.target
        self.layers = (recipe.target_layers,)
        self.head = own_part(target, recipe.target_layers, recipe.own_layers).to(target.device)
        self.start()

    @torch.no_grad()
    def start(self) -> None:
        """Start from the target's last layers: they write what its LM head reads."""
        own: Any = self.head
        body: Any = self.frozen_target.model.base_model
        last = body.layers[len(body.layers) - len(own.layers):]
        for layer, source in zip(own.layers, last, strict=True):
            layer.load_state_dict({name: tensor.float() for name, tensor in source.state_dict().items()})
        own.requires_grad_(True)

    def vocabulary_parameters(self) -> list[Tensor]:
        return []

    def steps(self, batch: Batch, states: TargetStates, slots: Slots, noise: torch.Generator) -> Iterator[DraftStep]:
        own: Any = self.head
        assert states.features is not None, "the trainer's `layers` ask for them"
        out = own(inputs_embeds=states.features.float(), position_ids=batch.positions,
                  attention_mask=self.frozen_target.mask(batch), use_cache=False).last_hidden_state
        yield DraftStep(*self.run(self._loss, slots.after(out, 1), slots.after(states.hidden, 1), slots.weight[0]))

    def _loss(self, hidden: Tensor, teacher: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        target = self.frozen_target.target
        logits = target.head(hidden)
        with torch.no_grad():
            truth = target.head(teacher)
        return mean(soft_cross_entropy(logits, truth.softmax(-1)), weight), rank_of(logits, truth.argmax(-1))

    def export(self, folder: Path, *, pickled: bool = False) -> None:
        recipe = self.recipe
        settings = settings_of(self.frozen_target.target, recipe.target_layers, recipe.own_layers)
        write_checkpoint(folder, self.head.state_dict(), settings | {"torch_dtype": "bfloat16"})
