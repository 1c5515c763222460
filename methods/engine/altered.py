"""A model with weights as quantisation leaves them: rounded, and computed with in the model's own
type, as a GGUF file's weights are once they are dequantised."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError

BLOCK = 32
"""Weights in a row that share a scale, in GGUF's forms."""
GGUF_FORMS = ("Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
FORMS = ("bfloat16", "int8", *GGUF_FORMS)


def altered(model: LanguageModel, form: str) -> tuple[LanguageModel, int]:
    """A copy with every matrix rounded to `form`, one of `FORMS`, embedding and LM head included;
    and how many matrices were left as they are, since GGUF's blocks do not divide their rows.

    int8: symmetric, one scale a row. Raises ModelError for another form."""
    if form not in FORMS:
        raise ModelError(f"{form}: no form of weights; allowed: {', '.join(FORMS)}")
    module = copy.deepcopy(model.model)
    left = 0
    with torch.no_grad():
        for weight in module.parameters():  # tied ones once
            if weight.ndim != 2:
                continue
            if form in GGUF_FORMS and weight.shape[-1] % BLOCK:
                left += 1
            else:
                weight.copy_(rounded(weight, form))
    return replace(model, model=module, products=None, graphs=None), left


def rounded(weight: Tensor, form: str) -> Tensor:
    """A matrix [rows, columns] in `form`, in its own type."""
    if form == "bfloat16":
        return weight.to(torch.bfloat16).to(weight.dtype)
    if form == "int8":
        scale = weight.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
        return (weight / scale).round().clamp(-127, 127) * scale
    from gguf import GGMLQuantizationType, dequantize, quantize  # a few tenths of a second

    kind = GGMLQuantizationType[form]
    plain = quantize(weight.detach().float().cpu().numpy(), kind)
    return torch.from_numpy(dequantize(plain, kind)).to(weight)
