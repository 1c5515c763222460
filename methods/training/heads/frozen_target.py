"""The target during head training: frozen, without gradients, in its own dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from methods.engine.language_model import LanguageModel
from methods.training.packing import Batch


@dataclass(slots=True)
class TargetStates:
    """The target's hidden states of a batch.

    features  [R, T, F*H] the chosen HF hidden_states, concatenated; None if none were asked for.
    hidden    [R, T, H] final-norm states.
    """

    features: Tensor | None
    hidden: Tensor


class FrozenTarget:
    """A target as the teacher of a head."""

    def __init__(self, target: LanguageModel) -> None:
        self.target = target
        self.model = target.model.requires_grad_(False)
        self.config = self.model.config.get_text_config(decoder=True)

    @property
    def final_norm(self) -> Tensor:
        """[H] weight of the norm in front of the LM head."""
        base: Any = self.model.base_model
        weight: Tensor = base.norm.weight
        return weight

    @torch.no_grad()  # not inference_mode: a head keeps these states for its backward pass
    def states(self, batch: Batch, layers: tuple[int, ...] = ()) -> TargetStates:
        """One forward over packed conversations, each attending to itself only. `layers`: HF hidden_states indices."""
        base: Any = self.model.base_model
        out = base(
            input_ids=batch.input_ids, position_ids=batch.positions, attention_mask=self.mask(batch), use_cache=False,
            output_hidden_states=bool(layers))
        features = torch.cat([out.hidden_states[i] for i in layers], -1) if layers else None
        return TargetStates(features, out.last_hidden_state)

    def mask(self, batch: Batch) -> Tensor | dict[str, Tensor]:
        """Which tokens each token of a batch attends to, bool, as the target's decoder takes it."""
        mask = batch.attention_mask()
        near = mask
        if self.target.window:
            distance = batch.positions[:, None, :, None] - batch.positions[:, None, None, :]
            near = mask & (distance < self.target.window)
        if getattr(self.config, "layer_types", None):
            return {"full_attention": mask, "sliding_attention": near}
        return near
