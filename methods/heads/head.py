"""A trained head bound to its target: what a drafter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from methods.engine.block import Block, Place, Rotary, choose_kernels, fold
from methods.engine.cache import SlotCache
from methods.engine.families import obstacle
from methods.engine.fingerprints import fingerprint
from methods.engine.graphs import Graphs
from methods.engine.language_model import LanguageModel
from methods.engine.products import Products, of_head
from methods.engine.source import ModelError
from methods.heads.checkpoint import Checkpoint, read
from methods.heads.eagle import EagleHead
from methods.heads.eagle3 import TARGET_HEAD, Eagle3Head
from methods.heads.layer import HeadModule, head_config


@dataclass
class Head:
    """An EAGLE head with what it borrows from its target.

    model   the head itself.
    embed   token ids -> embeddings: the checkpoint's own embedding or the target's.
    logits  hidden states [..., h] -> float32 logits [..., Vd] over the head's vocabulary.
    to_target  [Vd] int64 target id of each draft id, None where the vocabularies are the same.
    lean    its layer runs as a `Block` of the lean decoder, as its target's do, and not through its modules.
    graphs  what records its forwards, as its target's.
    products  the kernels that were chosen for its weights, as its target has them.
    """

    source: str
    model: HeadModule
    embed: nn.Module
    logits: Callable[[Tensor], Tensor]
    to_target: Tensor | None
    vocab_size: int
    fingerprint: str
    max_positions: int = 1 << 30  # its rotary positions are computed, not stored
    lean: bool = False
    graphs: Graphs | None = None
    products: Products | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes a block for weights of its own."""
        own = {name: value for name, value in vars(self).items() if name not in ("_block", "_rotary")}
        return own | {"products": None}

    @cached_property
    def _block(self) -> Block | None:
        layer, config = self.model.layer, self.model.config
        if not self.lean:
            return None
        return Block(layer.self_attn, layer.mlp, layer.post_attention_layernorm, config, 0, self.products)

    @cached_property
    def _rotary(self) -> Rotary:
        weight = next(self.model.parameters())
        return Rotary(self.model.rotary_emb, weight.dtype, self.model.config.max_position_embeddings)

    @torch.no_grad()
    def step(self, tokens: Tensor, hidden: Tensor, positions: Tensor, mask: Tensor | None, cache: SlotCache) -> Tensor:
        """One forward after `SlotCache.begin`: `tokens` [B, N] int64 and the hidden states [B, N, h] before them ->
        hidden states [B, N, h]. positions [B, N] int64; mask [B, 1, N, L] additive, None: chains in an empty cache."""
        embeddings = self.embed(tokens)
        if self._block is None:
            out: Tensor = self.model(embeddings, hidden, mask=mask, rotary=self.model.rotary(positions), cache=cache)
            return out
        x, residual = self.model.layer_input(embeddings, hidden)
        mask = fold(mask, self._block.heads // self._block.groups)
        place = Place(cache, *self._rotary.at(positions, cache.slots), mask)
        return self._block(x.flatten(0, 1), residual.flatten(0, 1), place).view_as(residual)

    @property
    def full_vocabulary(self) -> bool:
        """Whether its distribution covers every token of the target."""
        return self.to_target is None

    @property
    def draft_vocab(self) -> int:
        return self.vocab_size if self.to_target is None else len(self.to_target)

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` likeliest tokens under logits [B, M, Vd], best first, in the target's vocabulary [B, M, count]
        int64, and their log-probabilities."""
        top = logits.log_softmax(-1).topk(count, dim=-1)
        return top.indices if self.to_target is None else self.to_target.take(top.indices), top.values

    def over_target(self, logits: Tensor) -> Tensor:
        """Logits [B, N, Vd] -> [B, N, V] over the target's vocabulary; -inf for tokens that cannot be drafted."""
        if self.to_target is None:
            return logits
        full = torch.full((*logits.shape[:2], self.vocab_size), -torch.inf, device=logits.device)
        return full.index_copy_(2, self.to_target, logits)

    def new_cache(self, rows: int, slots: int) -> SlotCache:
        weight = next(self.model.parameters())
        graphs = self.graphs if self.lean and not self._rotary.by_length else None
        return SlotCache(self.model.config, rows, slots, dtype=weight.dtype, device=weight.device, graphs=graphs)


def load_eagle3(source: str, target: LanguageModel, *, revision: str | None = None, dtype: str = "float32",
                device: str = "cpu") -> Head:
    """An EAGLE-3 checkpoint (hub name or folder) on its target. Raises ModelError, one line."""
    checkpoint = read(source, revision)
    raw = checkpoint.config
    if raw.get("draft_vocab_size") in (None, raw.get("vocab_size")):
        checkpoint = checkpoint.without("d2t", "t2d")  # maps onto itself, which the official loader drops too
    own = "embed_tokens.weight" in checkpoint.tensors
    target_size = raw.get("target_hidden_size") or raw.get("hidden_size")
    _check_target(source, target, target_size, raw)
    if target_size != raw.get("hidden_size") and not own:
        raise ModelError(f"{source}: its hidden size {raw.get('hidden_size')} is not the target's {target_size}, so it "
                         "needs an embedding of its own, and embed_tokens.weight is missing; give the head's official "
                         "checkpoint")
    if raw.get(TARGET_HEAD):
        checkpoint = checkpoint.including("lm_head.weight", _target_rows(checkpoint, target))
    config = _config(checkpoint, "midlayer.self_attn.")
    module = Eagle3Head(config, target_size=target_size, draft_vocab=raw.get("draft_vocab_size"), own_embedding=own,
                        attention_bias="midlayer.self_attn.q_proj.bias" in checkpoint.tensors)
    _fill(module, checkpoint, dtype, device)
    to_target = None
    if module.d2t is not None:
        to_target = torch.arange(len(module.d2t), device=device) + module.d2t
        if not to_target.is_meta:
            _check_vocabulary(source, to_target, module.t2d)
    return _bound(source, module, target, lambda hidden: module.logits(hidden).float(), to_target, revision)


def load_eagle(source: str, target: LanguageModel, *, revision: str | None = None, dtype: str = "float32",
               device: str = "cpu") -> Head:
    """A checkpoint of EAGLE, EAGLE-2 or HASS (hub name or folder) on its target. Raises ModelError, one line."""
    checkpoint = read(source, revision)
    raw = checkpoint.config
    _check_target(source, target, raw.get("hidden_size"), raw)
    config = _config(checkpoint, "layers.0.self_attn.")
    module = EagleHead(config, bias=raw.get("bias", True), own_embedding="embed_tokens.weight" in checkpoint.tensors,
                       attention_bias="layers.0.self_attn.q_proj.bias" in checkpoint.tensors)
    _fill(module, checkpoint, dtype, device)
    return _bound(source, module, target, target.head, None, revision)


def _bound(source: str, module: HeadModule, target: LanguageModel, logits: Callable[[Tensor], Tensor],
           to_target: Tensor | None, revision: str | None) -> Head:
    """The head on its target."""
    digits, config = fingerprint(source, revision), module.config
    products = of_head(module, digits, target.products)
    choose_kernels(module, products)
    return Head(source, module, module.embed_tokens or target.model.get_input_embeddings(), logits, to_target,
                config.vocab_size, digits, lean=_is_lean(target, config), graphs=target.graphs, products=products)


def _is_lean(target: LanguageModel, config: LlamaConfig) -> bool:
    """A head follows its target, as far as its layer is one of Llama's."""
    asked = target.decoder != "transformers" and obstacle(target.model.config.to_dict()) is None
    return asked and config.hidden_act == "silu"


def _target_rows(checkpoint: Checkpoint, target: LanguageModel) -> Tensor:
    """[Vd, H] the rows of the target's LM head for the draft vocabulary of an EAGLE-3 checkpoint."""
    weight = target.head_weight
    if "d2t" not in checkpoint.tensors:
        return weight
    if weight.is_meta:  # sizes alone
        return weight[:len(checkpoint.tensors["d2t"])]
    offsets = checkpoint.tensors["d2t"].to(weight.device)
    ids = torch.arange(len(offsets), device=weight.device) + offsets
    _check_vocabulary(checkpoint.source, ids, checkpoint.tensors["t2d"].to(weight.device))
    return weight[ids]


def _config(checkpoint: Checkpoint, attention: str) -> LlamaConfig:
    """The layer's configuration; a head dimension that the file does not give is read off the tensors."""
    raw, changes = checkpoint.config, dict[str, int]()
    out = checkpoint.tensors.get(f"{attention}o_proj.weight")
    try:
        if raw.get("head_dim") is None and out is not None:
            changes["head_dim"] = out.shape[1] // raw["num_attention_heads"]
        return head_config(raw, **changes)
    except KeyError as error:
        raise ModelError(f"{checkpoint.source}: config.json has no {error.args[0]}; it must describe a head") from error


def _check_target(source: str, target: LanguageModel, size: int | None, raw: Mapping[str, Any]) -> None:
    """A head belongs to one target: refuse another by its sizes."""
    config = target.model.config.get_text_config(decoder=True)
    if size != config.hidden_size:
        raise ModelError(f"{source}: made for a target of hidden size {size}, and {target.source} has "
                         f"{config.hidden_size}; give the head that belongs to this target")
    if raw.get("vocab_size") != target.vocab_size:
        raise ModelError(f"{source}: its vocabulary has {raw.get('vocab_size')} entries, the target's "
                         f"{target.vocab_size}; give the head that belongs to this target")


def _check_vocabulary(source: str, to_target: Tensor, t2d: Tensor) -> None:
    """The two maps of a reduced draft vocabulary must say the same."""
    if not torch.equal(to_target.sort().values, t2d.nonzero()[:, 0]):
        raise ModelError(f"{source}: d2t and t2d disagree: d2t must map the {len(to_target)} draft ids one to one onto "
                         f"the {int(t2d.sum())} target ids that t2d marks; export the head again")


def _fill(module: HeadModule, checkpoint: Checkpoint, dtype: str, device: str) -> None:
    """Put the tensors in, all of them and no others, and make the head ready to run."""
    checkpoint.fill(module)
    module.to(device=device, dtype=getattr(torch, dtype)).eval().requires_grad_(False)
