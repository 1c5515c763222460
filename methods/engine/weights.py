"""Check that a model holds the weights of its checkpoint: all of them, no others, and every one a finite number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from methods.engine.source import ModelError

HARMLESS = re.compile(r"rotary_emb\.inv_freq$|\.(attn|attention)\.(masked_)?bias$|^medusa_head\.")
"""Tensors of a checkpoint that its model need not have: recomputed tables, masks of old versions of transformers,
Medusa's heads beside their target."""


def check_loaded(source: str, model: nn.Module, info: Mapping[str, Any]) -> None:
    """Raise ModelError, one line, where `info`, the loading information of `from_pretrained`, has missing, unexpected
    or misshapen tensors, or where a weight is not finite. Tied weights are not missing."""
    kinds = {"missing": info["missing_keys"],
             "unexpected": [name for name in info["unexpected_keys"] if not HARMLESS.search(name)],
             "of another shape": [name for name, *_ in info["mismatched_keys"]]}
    problems = [f"{len(names)} {kind} ({some(sorted(names))})" for kind, names in kinds.items() if names]
    if problems:
        raise ModelError(f"{source}: its tensors do not fit its config.json: {'; '.join(problems)}; give a checkpoint "
                         "whose config.json and weights belong together")
    check_finite(source, model.named_parameters())


def check_finite(source: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise ModelError, one line, for a tensor with a NaN or an infinity. Takes one pass and no memory."""
    own = ((name, tensor.to_local() if isinstance(tensor, DTensor) else tensor) for name, tensor in tensors)
    wrong = [name for name, tensor in own
             if tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() and not tensor.is_meta
             and not torch.isfinite(torch.stack(tensor.detach().aminmax())).all()]
    if wrong:
        raise ModelError(f"{source}: weights that are NaN or infinite in {len(wrong)} tensors: {some(wrong)}; the file "
                         "is damaged, or its numbers do not fit into engine.dtype")


def some(names: Sequence[str]) -> str:
    """The first names and how many there are beyond them."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
