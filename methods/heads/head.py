"""A trained head bound to its target: what a drafter runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig

from methods.engine.cache import SlotCache
from methods.engine.decoder import DecoderLayer, NodePlaces, Norm, Rotary, fold, pack, positions_of
from methods.engine.families import obstacle
from methods.engine.fingerprints import fingerprint
from methods.engine.graphs import Graphs
from methods.engine.language_model import LanguageModel
from methods.engine.products import Products
from methods.engine.source import ModelError
from methods.heads.checkpoint import HeadCheckpoint, read
from methods.heads.config_check import FAULTS, check_rope, check_values, not_computed
from methods.heads.eagle import (
    FEATURES,
    NEEDED,
    TARGET_HEAD,
    Eagle3Head,
    EagleHead,
    HeadModule,
    LayerInput,
    head_config,
)
from methods.heads.eagle3_config import flat, form_of


@dataclass
class Head:
    """An EAGLE head with what it borrows from its target.

    model   the head itself.
    embed   token ids -> embeddings: the checkpoint's own embedding or the target's.
    logits  hidden states [..., h] -> float32 logits [..., Vd] over the head's vocabulary.
    to_target  [Vd] int64 target id of each draft id, None where the vocabularies are the same.
    features  HF hidden_states indices of the target that it reads.
    lean    its layers run as `DecoderLayer`s of the lean decoder, as its target's do, and not
            through its modules.
    graphs  what records its forwards, as its target's.
    products  its packed weights, with those of its target.
    """

    source: str
    model: HeadModule
    embed: nn.Embedding
    logits: Callable[[Tensor], Tensor]
    to_target: Tensor | None
    vocab_size: int
    fingerprint: str
    features: tuple[int, ...]
    max_positions: int = 1 << 30  # its rotary positions are computed, not stored
    lean: bool = False
    graphs: Graphs | None = None
    products: Products | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy makes a block for weights of its own."""
        state = {
            name: value
            for name, value in vars(self).items()
            if name not in ("_blocks", "_rotary", "_lean")
        }
        return state | {"products": None}

    @cached_property
    def _blocks(self) -> list[tuple[Norm | None, DecoderLayer]]:
        """Its layers with the norms in front of them; the first has normalised its input itself."""
        model, config = self.model, self.model.config
        return [
            (
                Norm(layer.input_layernorm.weight, config.rms_norm_eps) if index else None,
                DecoderLayer(
                    layer.self_attn,
                    layer.mlp,
                    layer.post_attention_layernorm,
                    config,
                    index,
                    self.products,
                ),
            )
            for index, layer in enumerate(model.stack)
        ]

    @cached_property
    def _rotary(self) -> Rotary:
        weight = next(self.model.parameters())
        return Rotary(self.model.rotary_emb, weight.dtype, positions_of(self.model.config))

    @cached_property
    def _lean(self) -> LayerInput:
        return self.model.lean_input()

    def rotary(self, positions: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines for `step` at positions [B, N] int64, all below `slots`."""
        return self._rotary.at(positions, slots) if self.lean else self.model.rotary(positions)

    def step(
        self,
        tokens: Tensor,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        mask: Tensor | None,
        cache: SlotCache,
    ) -> Tensor:
        """One forward after `SlotCache.begin`: `tokens` [B, N] int64 and the hidden states [B, N,
        h] before them -> hidden states [B, N, h]. `rotary` of their positions; mask [B, 1, N, L]
        additive, None: chains in an empty cache."""
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self.step(tokens, hidden, rotary, mask, cache)
        if not self.lean:
            out: Tensor = self.model(
                self.embed(tokens), hidden, mask=mask, rotary=rotary, cache=cache
            )
            return out
        embeddings = F.embedding(tokens.flatten(), self.embed.weight)
        x, stream = self._lean(embeddings, hidden.flatten(0, 1))
        first = self._blocks[0][1]
        place = NodePlaces(cache, *rotary, fold(mask, first.heads // first.groups))
        for norm, block in self._blocks:
            stream = block(x if norm is None else norm(stream), stream, place)
        return self.model.output(stream.view(*tokens.shape, -1))

    @property
    def full_vocabulary(self) -> bool:
        """Whether its distribution covers every token of the target."""
        return self.to_target is None

    @property
    def draft_vocab(self) -> int:
        return self.vocab_size if self.to_target is None else len(self.to_target)

    def best(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` likeliest tokens under logits [B, M, Vd], best first, in the target's
        vocabulary [B, M, count] int64, and their log-probabilities."""
        top = logits.log_softmax(-1).topk(count, dim=-1)
        return top.indices if self.to_target is None else self.to_target.take(
            top.indices
        ), top.values

    def over_target(self, logits: Tensor) -> Tensor:
        """Logits [B, N, Vd] -> [B, N, V] over the target's vocabulary; -inf for tokens that cannot
        be drafted."""
        if self.to_target is None:
            return logits
        full = torch.full((*logits.shape[:2], self.vocab_size), -torch.inf, device=logits.device)
        return full.index_copy_(2, self.to_target, logits)

    def new_cache(self, rows: int, slots: int) -> SlotCache:
        weight = next(self.model.parameters())
        return SlotCache(
            self.model.config,
            rows,
            slots,
            dtype=weight.dtype,
            device=weight.device,
            graphs=self.graphs if self.lean else None,
        )


def load_eagle3(
    source: str,
    target: LanguageModel,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
) -> Head:
    """An EAGLE-3 checkpoint (hub name or folder) on its target. Raises ModelError, one line."""
    checkpoint = _official(read(source, revision))
    raw = checkpoint.config
    check_values(source, raw)
    if raw.get("draft_vocab_size") in (None, raw.get("vocab_size")):
        checkpoint.tensors.pop("d2t", None)  # it maps onto itself; the official loader drops it too
        checkpoint.tensors.pop("t2d", None)
    has_embedding = "embed_tokens.weight" in checkpoint.tensors
    target_size = raw.get("target_hidden_size") or raw.get("hidden_size")
    _check_target(source, target, target_size, raw)
    if target_size != raw.get("hidden_size") and not has_embedding:
        raise ModelError(
            f"{source}: its hidden size {raw.get('hidden_size')} is not the target's "
            f"{target_size}, so it needs an embedding of its own, and embed_tokens.weight is "
            "missing; give the head's official checkpoint"
        )
    form = form_of(
        source,
        raw,
        target.model.config.get_text_config(decoder=True),
        checkpoint.layers("midlayer"),
    )
    if not form.fuses:  # vLLM drops it too
        checkpoint.tensors.pop("fc.weight", None)
    if raw.get(TARGET_HEAD):
        checkpoint.tensors["lm_head.weight"] = _target_rows(checkpoint, target)
    config = _config(checkpoint, "midlayer.self_attn.", num_hidden_layers=form.layers)
    module = Eagle3Head(
        config,
        form,
        target_size=target_size,
        draft_vocab=raw.get("draft_vocab_size"),
        own_embedding=has_embedding,
        attention_bias="midlayer.self_attn.q_proj.bias" in checkpoint.tensors,
    )
    checkpoint.prepare(module, dtype, device)
    to_target = None
    if module.d2t is not None:
        to_target = torch.arange(len(module.d2t), device=device) + module.d2t
        if not to_target.is_meta:
            _check_vocabulary(source, to_target, module.t2d)
    return _bound(
        source,
        module,
        target,
        lambda hidden: module.logits(hidden).float(),
        to_target,
        form.features,
        revision,
    )


def _official(checkpoint: HeadCheckpoint) -> HeadCheckpoint:
    """An EAGLE-3 checkpoint in the official layout: its config flat, its first layer `midlayer`,
    `t2d` beside `d2t`. speculators and some exporters name the first layer `layers.0`, put `model.`
    in front or leave `t2d` out."""
    config, tensors = flat(checkpoint.source, checkpoint.config), {}
    for name, tensor in checkpoint.tensors.items():
        plain = name.removeprefix("model.")
        # older files of speculators hold weights of the target
        if not plain.startswith("verifier_"):
            tensors[
                plain.replace("layers.0.", "midlayer.", 1)
                if plain.startswith("layers.0.")
                else plain
            ] = tensor
    d2t, size = tensors.get("d2t"), config.get("vocab_size")
    if d2t is not None and not d2t.is_meta and "t2d" not in tensors and isinstance(size, int):
        ids = torch.arange(len(d2t)) + d2t
        if bool(((ids >= 0) & (ids < size)).all()):
            tensors["t2d"] = torch.zeros(size, dtype=torch.bool).index_fill_(0, ids, True)
    return replace(checkpoint, config=config, tensors=tensors)


def load_eagle(
    source: str,
    target: LanguageModel,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "cpu",
) -> Head:
    """A checkpoint of EAGLE, EAGLE-2 or HASS (hub name or folder) on its target. Raises ModelError,
    one line."""
    checkpoint = read(source, revision)
    raw = checkpoint.config
    if "speculators_model_type" in raw:
        raise ModelError(
            f"{source}: a {raw['speculators_model_type']} checkpoint of speculators, of which only "
            "eagle3 can be read (pair.eagle3); give this head in its official format"
        )
    check_values(source, raw)
    _check_target(source, target, raw.get("hidden_size"), raw)
    config = _config(checkpoint, "layers.0.self_attn.")
    module = EagleHead(
        config,
        bias=raw.get("bias", True),
        own_embedding="embed_tokens.weight" in checkpoint.tensors,
        attention_bias="layers.0.self_attn.q_proj.bias" in checkpoint.tensors,
    )
    checkpoint.prepare(module, dtype, device)
    return _bound(source, module, target, target.head, None, FEATURES, revision)


def _bound(
    source: str,
    module: HeadModule,
    target: LanguageModel,
    logits: Callable[[Tensor], Tensor],
    to_target: Tensor | None,
    features: tuple[int, ...],
    revision: str | None,
) -> Head:
    """The head on its target."""
    digits, config = fingerprint(source, revision), module.config
    pack(module, target.products)
    return Head(
        source,
        module,
        module.embed_tokens or target.model.get_input_embeddings(),
        logits,
        to_target,
        config.vocab_size,
        digits,
        features,
        lean=_is_lean(target, config),
        graphs=target.graphs,
        products=target.products,
    )


def _is_lean(target: LanguageModel, config: LlamaConfig) -> bool:
    """A head follows its target, as far as its layer is one of Llama's."""
    asked = target.decoder != "transformers" and obstacle(target.model.config.to_dict()) is None
    return asked and config.hidden_act == "silu"


def _target_rows(checkpoint: HeadCheckpoint, target: LanguageModel) -> Tensor:
    """[Vd, H] the rows of the target's LM head for the draft vocabulary of an EAGLE-3
    checkpoint."""
    weight = target.head_weight
    if "d2t" not in checkpoint.tensors:
        return weight
    if weight.is_meta:  # sizes alone
        return weight[: len(checkpoint.tensors["d2t"])]
    offsets = checkpoint.tensors["d2t"].to(weight.device)
    ids = torch.arange(len(offsets), device=weight.device) + offsets
    _check_vocabulary(checkpoint.source, ids, checkpoint.tensors["t2d"].to(weight.device))
    return weight[ids]


def _config(checkpoint: HeadCheckpoint, attention: str, **changes: int) -> LlamaConfig:
    """The layer's configuration; a head dimension that the file does not give is read off the
    tensors."""
    raw, source = checkpoint.config, checkpoint.source
    out = checkpoint.tensors.get(f"{attention}o_proj.weight")
    if missing := [key for key in NEEDED if raw.get(key) is None]:
        raise ModelError(f"{source}: config.json has no {missing[0]}; it must describe a head")
    if raw.get("head_dim") is None and out is not None:
        changes["head_dim"] = out.shape[1] // raw["num_attention_heads"]
    try:
        config = head_config(raw, **changes)
    except FAULTS as error:
        raise not_computed(source, error) from error
    check_rope(source, config)
    return config


def _check_target(
    source: str, target: LanguageModel, size: int | None, raw: Mapping[str, Any]
) -> None:
    """A head belongs to one target: refuse another by its sizes."""
    config = target.model.config.get_text_config(decoder=True)
    if size != config.hidden_size:
        raise ModelError(
            f"{source}: made for a target of hidden size {size}, and {target.source} has "
            f"{config.hidden_size}; give the head that belongs to this target"
        )
    if raw.get("vocab_size") != target.vocab_size:
        raise ModelError(
            f"{source}: its vocabulary has {raw.get('vocab_size')} entries, the target's "
            f"{target.vocab_size}; give the head that belongs to this target"
        )


def _check_vocabulary(source: str, to_target: Tensor, t2d: Tensor) -> None:
    """The two maps of a reduced draft vocabulary must say the same."""
    if not torch.equal(to_target.sort().values, t2d.nonzero()[:, 0]):
        raise ModelError(
            f"{source}: d2t and t2d disagree: d2t must map the {len(to_target)} draft ids one to "
            f"one onto the {int(t2d.sum())} target ids that t2d marks; export the head again"
        )
