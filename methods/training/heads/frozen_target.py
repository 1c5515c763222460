"""The target while a head is trained on it: frozen, without gradients, in its own dtype."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.engine.language_model import LanguageModel
from methods.training.packing import Batch


@dataclass(slots=True)
class TargetStates:
    """What the target makes of a batch: features [R, T, F*H], the chosen HF hidden_states concatenated (None if none
    were asked for), and hidden [R, T, H], its final-norm states."""

    features: Tensor | None
    hidden: Tensor


class FrozenTarget:
    """`target` as a teacher."""

    def __init__(self, target: LanguageModel):
        self.target = target
        self.model = target.model.requires_grad_(False)
        self.config = self.model.config.get_text_config(decoder=True)

    @torch.no_grad()  # not inference_mode: a head keeps these states for its backward pass
    def states(self, batch: Batch, layers: tuple[int, ...] = ()) -> TargetStates:
        """One forward over packed conversations that do not see each other. `layers`: HF hidden_states indices."""
        out = self.model.base_model(
            input_ids=batch.input_ids, position_ids=batch.positions, attention_mask=self._mask(batch), use_cache=False,
            output_hidden_states=bool(layers))
        features = torch.cat([out.hidden_states[i] for i in layers], -1) if layers else None
        return TargetStates(features, out.last_hidden_state)

    def _mask(self, batch: Batch) -> Tensor | dict[str, Tensor]:
        mask = batch.attention_mask()
        near = mask
        if self.target.window:
            distance = batch.positions[:, None, :, None] - batch.positions[:, None, None, :]
            near = mask & (distance < self.target.window)
        if getattr(self.config, "layer_types", None):
            return {"full_attention": mask, "sliding_attention": near}
        return near
