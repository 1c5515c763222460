"""What the config.json of an EAGLE-3 head says of it, in the official layout and in that of
`speculators`.

The keys are those that vLLM (`llama_eagle3.py`), SGLang (`llama_eagle3.py`), SpecForge, speculators
and NVIDIA's exporter read and write. A key that changes what the head computes is honoured or
refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from methods.engine.source import ModelError

AUX_LAYERS = "eagle_aux_hidden_state_layer_ids"
DEFAULTS = {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "parallel_draft_step": 1,
    "next_layer_regular": True,
}
"""Keys of `eagle_config` that the exporter writes, and the one value that `Eagle3Head` computes
with."""


def fused_layers(layers: int) -> tuple[int, int, int]:
    """The HF hidden_states indices that are fused, for a target of `layers` layers: low, middle,
    high."""
    return 2, layers // 2, layers - 3


@dataclass(frozen=True, slots=True)
class Form:
    """How a head differs from the official one.

    features              HF hidden_states indices of the target that it reads; (-1,): the
                          final-norm states alone, as they are, without `fc`.
    norm_before_fc        `input_norm`: one RMSNorm over the concatenated features (gpt-oss).
    fc_norm               an RMSNorm for each feature (EAGLE 3.1).
    norm_before_residual  the residual stream starts from the normalised hidden state.
    norm_output           the final norm's output is fed back, and not its input (EAGLE 3.1).
    layers                decoder layers; those behind the first are Llama's.
    window                positions that a token looks back, itself included; None: all.
    """

    features: tuple[int, ...]
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    layers: int = 1
    window: int | None = None

    @property
    def fuses(self) -> bool:
        """Whether the features go through `fc`."""
        return self.features != (-1,)


@dataclass(frozen=True, slots=True)
class _Config:
    """A flat config.json, and its `eagle_config`."""

    source: str
    raw: Mapping[str, Any]
    nested: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any) -> Any:
        """The value of a key that may stand in either place. Raises ModelError where they
        disagree."""
        stated = [place[key] for place in (self.nested, self.raw) if place.get(key) is not None]
        if len(stated) == 2 and stated[0] != stated[1]:
            raise ModelError(
                f"{self.source}: config.json says {key}={stated[1]!r}, and {stated[0]!r} in its "
                "eagle_config; remove the wrong one"
            )
        return stated[0] if stated else default

    def refuse(self, key: str, why: str) -> ModelError:
        value = self.nested.get(key, self.raw.get(key))
        return ModelError(f"{self.source}: config.json says {key}={value!r}: {why}")


def flat(source: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a head in the official layout; that of a `speculators` checkpoint is
    translated. Raises ModelError."""
    kind = raw.get("speculators_model_type")
    if kind is None:
        return dict(raw)
    layer = raw.get("transformer_layer_config")
    if kind != "eagle3" or not isinstance(layer, dict):
        raise ModelError(
            f"{source}: a {kind} checkpoint of speculators, and only eagle3 with a "
            "transformer_layer_config can be read; give an EAGLE-3 head"
        )
    if layer.get("model_type", "llama") != "llama":
        raise ModelError(
            f"{source}: its layer is of type {layer['model_type']}, and only llama can be read; "
            "give a head with a layer of Llama"
        )
    if raw.get("norm_before_residual") is None:
        raise ModelError(
            f"{source}: config.json has no norm_before_residual, which speculators and vLLM read "
            "differently; write true or false, as the head was trained"
        )
    return {key: value for key, value in raw.items() if key != "transformer_layer_config"} | layer


def form_of(source: str, raw: Mapping[str, Any], target: Any, stored: int | None = None) -> Form:
    """The form of a head with this flat config.json, for a target with this text config. held:
    decoder layers in its weights, None where these are unknown. Raises ModelError, one line, for
    what `Eagle3Head` does not compute."""
    nested = raw.get("eagle_config") or {}
    config = _Config(source, raw, nested)
    for key, value in nested.items():
        if key in DEFAULTS and value not in (None, DEFAULTS[key]):
            raise config.refuse(key, f"only {DEFAULTS[key]!r} can be run; give another head")
    if raw.get("kv_lora_rank") is not None:
        raise config.refuse(
            "kv_lora_rank",
            "latent attention cannot be run in a head; give one with a layer of Llama",
        )
    if raw.get("logit_scale") not in (None, 1.0):
        raise config.refuse(
            "logit_scale", "scaled logits cannot be run in a head; give another head"
        )
    features = _features(config, target)
    layers = _layers(config, stored, target.num_hidden_layers)
    flags = {
        key: bool(config.get(key, False))
        for key in ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")
    }
    if features == (-1,) and (flags["norm_before_fc"] or flags["fc_norm"]):
        raise config.refuse(
            "use_aux_hidden_state",
            "without it nothing is fused, so norm_before_fc and fc_norm mean "
            "nothing; set them to false, or use_aux_hidden_state to true",
        )
    return Form(features, layers=layers, window=_window(config, layers), **flags)


def _features(config: _Config, target: Any) -> tuple[int, ...]:
    """HF hidden_states indices. The ids come in two conventions: the index itself (vLLM,
    speculators; SGLang unless the first is 1), or the layer whose output is meant, one less
    (SpecForge and its default 1, n/2 - 1, n - 4)."""
    last = target.num_hidden_layers
    if not config.get("use_aux_hidden_state", True):
        return (-1,)
    ids, number = config.get(AUX_LAYERS, None), config.get("num_aux_hidden_states", None)
    if not ids:
        if number not in (None, 3):
            raise config.refuse(
                "num_aux_hidden_states", f"{AUX_LAYERS} does not say which; write these ids into it"
            )
        return fused_layers(last)
    if (
        not isinstance(ids, list)
        or not all(type(index) is int for index in ids)
        or number not in (None, len(ids))
    ):
        raise config.refuse(
            AUX_LAYERS, "must be a list of as many integers as num_aux_hidden_states says"
        )
    outputs = [index - 1 for index in fused_layers(last)]
    if AUX_LAYERS not in config.raw and ids[0] == 1 and target.model_type != "gpt_oss":
        if ids != outputs:
            raise config.refuse(
                AUX_LAYERS,
                "vLLM reads these as indices of hidden states, SGLang as outputs of "
                "layers, one more; write the indices (0: the embeddings) outside eagle_config",
            )
        ids = [index + 1 for index in ids]
    if wrong := [index for index in ids if not 0 <= index < last]:
        raise config.refuse(
            AUX_LAYERS,
            f"{wrong[0]} cannot be read from a target of {last} layers, whose hidden states 0 … "
            f"{last - 1} lie in front of them; give the head that belongs to this target",
        )
    return tuple(ids)


def _layers(config: _Config, stored: int | None, target: int) -> int:
    """Decoder layers of the head. A released head (Vicuna 13B) has one, and its config.json the
    target's number."""
    said = config.raw.get("num_hidden_layers") or 1
    if stored == 1 and said == target:
        return 1
    if stored not in (None, said):
        raise config.refuse(
            "num_hidden_layers",
            f"its weights have {stored}; give the head's official checkpoint, or export it again",
        )
    return 1 if stored is None and said == target else int(said)


def _window(config: _Config, layers: int) -> int | None:
    """The sliding window of all layers. transformers reads sliding_window only beside
    layer_types."""
    window, types = config.raw.get("sliding_window"), config.raw.get("layer_types")
    if window is None or config.raw.get("use_sliding_window") is False:
        return None
    if not types:
        raise config.refuse(
            "sliding_window",
            "without layer_types some engines apply it and some do not; write "
            'layer_types=["sliding_attention"], or sliding_window=null',
        )
    kinds = set(types[:layers])
    if kinds == {"sliding_attention"}:
        return int(window)
    if kinds == {"full_attention"}:
        return None
    raise config.refuse(
        "layer_types",
        "a head's layers must all be full_attention or all sliding_attention; give another head",
    )
