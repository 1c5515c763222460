"""A draft model cut out of its target: the target's first layers, then a few layers and a final norm of its own.

Embedding, LM head, tokenizer and the first layers are the target's, in memory and on disk: a checkpoint holds what was
trained alone. Its config.json names the target (`target`, `target_revision`) and the sizes (`target_layers`,
`own_layers`, `hidden_size`, …); its tensors are `layers.0.…`, `layers.1.…` and `norm.…`, named as in the target's own
decoder.

Related: Elhoushi et al. 2024, "LayerSkip" (early exit); Liu et al. 2024, "Kangaroo" (frozen shallow layers and a
trained adapter)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn

from methods.engine.fingerprints import fingerprint
from methods.engine.language_model import LanguageModel
from methods.engine.source import CUT, ModelError, read_json
from methods.engine.weights import check_finite, some

WEIGHTS = "model.safetensors"
SIZES = ("hidden_size", "vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
"""What a cut and its target must agree in."""


def settings_of(target: LanguageModel, target_layers: int, own_layers: int) -> dict[str, Any]:
    """config.json of a cut of `target`."""
    config = target.model.config.get_text_config(decoder=True)
    sizes = {key: getattr(config, key, None) for key in SIZES}
    return {"architectures": [CUT], "target": target.source, "target_revision": target.revision,
            "target_layers": target_layers, "own_layers": own_layers} | sizes


def own_part(target: LanguageModel, target_layers: int, own_layers: int) -> nn.Module:
    """A decoder without embedding: `own_layers` new layers and a norm, in float32. As a module of transformers it takes
    `inputs_embeds` [B, N, H], the output of the target's first `target_layers` layers, and gives final-norm states."""
    body: Any = target.model.base_model
    config = copy.deepcopy(body.config)
    config.num_hidden_layers = target_layers + own_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:config.num_hidden_layers]
    kind, places = type(body.layers[0]), range(target_layers, target_layers + own_layers)
    own: nn.Module = copy.copy(body)
    object.__setattr__(own, "config", config)
    layers = nn.ModuleList([kind(config, layer_idx=place) for place in places])
    own._modules = {"layers": layers, "norm": copy.deepcopy(body.norm).float(), "rotary_emb": body.rotary_emb}
    return own


def joined(target: LanguageModel, own: nn.Module, source: str, digits: str) -> LanguageModel:
    """The cut as a language model: the target's embedding, first layers and LM head, shared, around `own`."""
    parts: Any = own
    shared = parts.config.num_hidden_layers - len(parts.layers)
    body, model = copy.copy(target.model.base_model), copy.copy(target.model)
    body.config = model.config = parts.config
    layers = nn.ModuleList([*body.layers[:shared], *parts.layers])
    body._modules = {**body._modules, "layers": layers, "norm": parts.norm}
    model._modules = {**model._modules, model.base_model_prefix: body}
    return LanguageModel(source, model.eval(), target.tokenizer, digits, target.decoder, target.graphs,
                         products=target.products)


def load_cut(source: str, target: LanguageModel) -> LanguageModel:
    """The cut of `target` in the folder `source`; of a target on the meta device, its shape. Raises ModelError, one
    line, where they do not belong together."""
    target.check_whole()
    config = read_json(Path(source) / "config.json")
    for key, wanted in settings_of(target, 0, 0).items():
        if key in SIZES and config.get(key) != wanted:
            raise ModelError(f"{source}: cut out of a target with {key} {config.get(key)}, and {target.source} has "
                             f"{wanted}; give the pair the target it was trained on")
    try:
        shared, count = int(config["target_layers"]), int(config["own_layers"])
    except (KeyError, ValueError) as error:
        raise ModelError(f"{source}: cannot be loaded as a cut of its target: its config.json lacks a number "
                         f"target_layers or own_layers ({error}); train it again with `python -m "
                         "bench.train heads`") from error
    if not 1 <= shared < target.layers or count < 1:
        raise ModelError(f"{source}: {shared} layers of its target and {count} of its own; {target.source} has "
                         f"{target.layers}; give the pair the target that the cut was trained on")
    own, weight = own_part(target, shared, count), target.embedding
    if not weight.is_meta:
        own.load_state_dict(_trained(source, own))
    return joined(target, own.to(weight.device, weight.dtype), source, fingerprint(source, None))


def _trained(source: str, own: nn.Module) -> dict[str, Tensor]:
    """The tensors of a cut's file, which `own` takes. Raises ModelError."""
    try:
        tensors = load_file(Path(source) / WEIGHTS)
    except (ValueError, OSError) as error:
        raise ModelError(f"{source}: cannot be loaded as a cut of its target: {str(error).splitlines()[0]}; train it "
                         "again with `python -m bench.train heads`") from error
    wanted = own.state_dict()
    _check_names(source, wanted.keys() - tensors.keys(), "missing")
    _check_names(source, tensors.keys() - wanted.keys(), "unexpected")
    check_finite(source, tensors.items())
    return tensors


def _check_names(source: str, names: Sequence[str] | set[str], problem: str) -> None:
    if names:
        raise ModelError(f"{source}: {problem} tensors: {some(sorted(names))}; its config.json and weights do not "
                         "belong together")
