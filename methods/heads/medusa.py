"""Medusa's heads: each guesses one later token from the same final state of the target.

Head i (from 0) reads the final-norm hidden state from which the target's LM head predicts token
t+1, and predicts token
t+2+i:   logits_i = W_i (x + SiLU(U_i x + b_i)), with one residual block or several in a row.
Source: Cai et al. 2024, "Medusa", section 2.1.1; tensor names `{i}.0.linear.{weight,bias}`,
`{i}.1.weight`, as in the official files. Medusa-1 heads lie in `medusa_lm_head.pt` in a repository
of their own; Medusa-2 trains the target with them, and its repository holds both: there they are
the tensors behind the prefix `medusa_head.`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.decoder import Product, pack
from methods.engine.fingerprints import fingerprint
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from methods.heads.checkpoint import WEIGHTS, HeadCheckpoint, read

FILES = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", *WEIGHTS)
"""The files that are tried, in this order."""
PUBLISHED_HEADS = 5
WITH_BACKBONE = "medusa_head."
"""Before the names of heads that lie in one checkpoint with their target."""
_NAME = re.compile(r"(\d+)\.(\d+)\.(?:linear\.(?:weight|bias)|weight)")


class ResBlock(nn.Module):
    """x -> x + SiLU(linear(x))."""

    def __init__(self, size: int):
        super().__init__()
        self.linear = Product(size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class MedusaHeads(nn.ModuleList):
    """`heads` heads on hidden states of `size`, each with `layers` residual blocks, for `vocab`
    tokens.

    Its state dict has the names of the official file."""

    def __init__(self, heads: int, size: int, vocab: int, layers: int = 1):
        super().__init__(
            nn.Sequential(
                *(ResBlock(size) for _ in range(layers)), Product(size, vocab, bias=False)
            )
            for _ in range(heads)
        )
        self.size, self.vocab, self.layers = size, vocab, layers

    @torch.no_grad()
    def start_from(self, lm_head: Tensor) -> MedusaHeads:
        """Begin training where every head predicts what the target's LM head [V, H] does (section
        2.2.1)."""
        for head in self:
            assert isinstance(head, nn.Sequential)
            *blocks, out = head
            for block in blocks:
                assert isinstance(block, ResBlock)
                nn.init.zeros_(block.linear.weight)
                nn.init.zeros_(block.linear.bias)
            assert isinstance(out, nn.Linear)
            out.weight.copy_(lm_head)
        return self

    def forward(self, hidden: Tensor, heads: int | None = None) -> Tensor:
        """hidden [..., H] -> logits [D, ..., V] of the first `heads` heads (None: all), in the
        heads' type."""
        return torch.stack([head(hidden) for head in islice(self, heads)])


@dataclass
class Medusa:
    """Heads bound to their target: what the drafter runs."""

    source: str
    model: MedusaHeads
    fingerprint: str
    full_vocabulary: bool = True
    features: tuple[int, ...] = (-1,)  # the final-norm states
    max_positions: int = 1 << 30  # they know no positions

    @property
    def vocab_size(self) -> int:
        return self.model.vocab


def load_medusa(
    source: str,
    target: LanguageModel,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
) -> Medusa:
    """A Medusa checkpoint (hub name or folder) on its target. How many heads and blocks there are
    follows from the tensors: config.json of the published files says 2 heads where the file has 5.
    Raises ModelError, one line."""
    checkpoint = heads_alone(read(source, revision, FILES))
    size, vocab = target.model.config.get_text_config(decoder=True).hidden_size, target.vocab_size
    module = _module(checkpoint, size, vocab)
    if (module.size, module.vocab) != (size, vocab):
        raise ModelError(
            f"{source}: made for a target of hidden size {module.size} and vocabulary "
            f"{module.vocab}, and this one has {size} and {vocab}; give the heads that belong to "
            f"{target.source}"
        )
    checkpoint.prepare(module, dtype, device)
    pack(module, target.products)
    return Medusa(source, module, fingerprint(source, revision))


def _module(checkpoint: HeadCheckpoint, size: int, vocab: int) -> MedusaHeads:
    """Heads of the shape that the tensors have; without any (a shape alone, for random weights) of
    the shape that config.json and the target's `size` and `vocab` give."""
    if not checkpoint.tensors:
        raw = checkpoint.config
        return MedusaHeads(
            raw.get("medusa_num_heads", PUBLISHED_HEADS),
            size,
            vocab,
            raw.get("medusa_num_layers", 1),
        )
    linear = checkpoint.tensors.get("0.0.linear.weight")
    if linear is None:
        raise ModelError(
            f"{checkpoint.source}: no Medusa heads: 0.0.linear.weight is not among its "
            f"{len(checkpoint.tensors)} tensors; give a folder or repository with medusa_lm_head.pt"
        )
    names = [*filter(None, map(_NAME.fullmatch, checkpoint.tensors))]
    heads, modules = (max(int(name[group]) for name in names) + 1 for group in (1, 2))
    last = checkpoint.tensors.get(f"0.{modules - 1}.weight")
    return MedusaHeads(
        heads, linear.shape[-1], vocab if last is None else last.shape[0], modules - 1
    )


def heads_alone(checkpoint: HeadCheckpoint) -> HeadCheckpoint:
    """The checkpoint without the backbone that Medusa-2 stores with the heads."""
    heads = {
        name.removeprefix(WITH_BACKBONE): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(WITH_BACKBONE)
    }
    return replace(checkpoint, tensors=heads) if heads else checkpoint
