"""What a head's config.json may say of its layer: numbers of the right kind that fit each other,
and a RoPE that can be computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import LlamaConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from methods.engine.source import ModelError

COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "num_hidden_layers",
    "draft_vocab_size",
    "target_hidden_size",
    "sliding_window",
)
MOST = 1 << 24
OBJECTS = ("rope_parameters", "rope_scaling", "eagle_config")
FAULTS = (
    StrictDataclassError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
)
"""What transformers raises of a configuration that it cannot use."""
ROPES = ("default", *ROPE_INIT_FUNCTIONS)


def check_values(source: str, raw: Mapping[str, Any]) -> None:
    """Raises ModelError, one line, for a value of the wrong kind or size. Null and absent keys are
    left to who reads them."""
    values = {key: value for key, value in raw.items() if value is not None}
    for key in COUNTS:
        if key in values and not (type(values[key]) is int and 0 < values[key] <= MOST):
            raise _wrong(source, key, values[key], f"must be an integer from 1 to {MOST}")
    for key in ("rms_norm_eps", "rope_theta"):
        if key in values and not _is_positive(values[key]):
            raise _wrong(source, key, values[key], "must be a number above 0")
    for key in OBJECTS:
        if not isinstance(values.get(key, {}), dict):
            raise _wrong(source, key, values[key], "must be an object")
    if not isinstance(values.get("layer_types", []), list):
        raise _wrong(source, "layer_types", values["layer_types"], "must be a list")
    activation = values.get("hidden_act", "silu")
    if not isinstance(activation, str) or activation not in ACT2FN:
        raise _wrong(source, "hidden_act", activation, "transformers knows no such function")
    heads, groups = values.get("num_attention_heads", 1), values.get("num_key_value_heads", 1)
    if heads % groups:
        raise _wrong(source, "num_key_value_heads", groups, f"must divide its {heads} heads")


def check_rope(source: str, config: LlamaConfig) -> None:
    """Raises ModelError, one line, for a RoPE that transformers cannot compute."""
    rope: Any = config.rope_parameters
    if not isinstance(rope["rope_type"], str) or rope["rope_type"] not in ROPES:
        raise _wrong(source, "rope_type", rope["rope_type"], f"must be one of {', '.join(ROPES)}")
    try:
        with torch.device("cpu"):  # they are looked at, also where weights have shapes alone
            frequencies = LlamaRotaryEmbedding(config).inv_freq
    except FAULTS as error:
        raise not_computed(source, error) from error
    width = config.head_dim or config.hidden_size // config.num_attention_heads
    if len(frequencies) * 2 != width or not bool(frequencies.isfinite().all()):
        raise _wrong(source, "rope_parameters", rope, f"gives no frequencies for heads of {width}")


def not_computed(source: str, error: Exception) -> ModelError:
    """What transformers raised of a layer's configuration, as one line."""
    said = " ".join(str(error).split())[:160]
    return ModelError(
        f"{source}: the layer of its config.json cannot be computed ({said}); give the head's "
        "official config.json"
    )


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value) and value > 0


def _wrong(source: str, key: str, value: object, why: str) -> ModelError:
    return ModelError(
        f"{source}: config.json says {key}={value!r:.160}: {why}; give the head's official "
        "config.json"
    )
