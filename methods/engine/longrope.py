"""Rotary frequencies that depend on the length of the text (LongRoPE of Phi-3 and Phi-4): one set up to the length that
the model was first trained on, another beyond.

transformers chooses by the longest position of a forward, and its `generate` reads a text anew where it grows beyond.
Here a row has the set of its prompt, whatever stands beside it and however far a draft reaches; an answer that would
cross the boundary is refused (`methods.decode.check_fit`).

Source: Ding et al. 2024, "LongRoPE"; `longrope_frequency_update` in transformers."""

from __future__ import annotations

from functools import partial
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from methods.engine.attention import layout_now


def boundary(model: nn.Module) -> int | None:
    """The longest text, in tokens, that has the short frequencies; None: a model has one set."""
    lengths = [int(module.config.rope_parameters["original_max_position_embeddings"]) for module in _tables(model)]
    return min(lengths, default=None)


def by_row(model: nn.Module) -> None:
    """Let the rows of a forward with a layout have their own frequencies. Without one the model is as it was."""
    for module in _tables(model):
        if "forward" not in vars(module):
            module.forward = partial(_forward, module)


def _tables(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if getattr(module, "rope_type", None) == "longrope"]


def _forward(module: Any, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    layout = layout_now()
    if layout is None or layout.long is None:
        found: tuple[Tensor, Tensor] = type(module).forward(module, x, position_ids, *args, **kwargs)
        return found
    plain = unwrap(type(module).forward)
    length = module.config.rope_parameters["original_max_position_embeddings"]
    far, _ = ROPE_INIT_FUNCTIONS["longrope"](module.config, x.device, seq_len=length + 1)
    module.inv_freq.copy_(far)
    beyond = plain(module, x, position_ids, *args, **kwargs)
    module.inv_freq.copy_(module.original_inv_freq)
    within = plain(module, x, position_ids, *args, **kwargs)
    long = layout.long[:, None, None]
    return torch.where(long, beyond[0], within[0]), torch.where(long, beyond[1], within[1])
