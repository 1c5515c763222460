"""What a GGUF file says beyond what `transformers` reads of it: applied, known to be harmless, or
refused.

`transformers` passes over keys and tensors that it does not know, and a model whose RoPE is scaled,
or whose answers end at a second token, then decodes other text without a word. Here every key and
every tensor is accounted for. The meaning of each is that of llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf.gguf_tokenizer_mapping import (
    GGUF_PRE_TOKENIZER_SPLITS,
    GGUF_TOKENIZER_MAPPING,
)
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

Keys = Mapping[str, Any]
ROPE_FREQS = "rope_freqs.weight"
LLAMA3 = ("llama3", "llama-v3", "llama-bpe")
"""Names of Llama 3's splitting of a text. Its tokenizer begins a text with a token, where the file
does not say otherwise, and takes a word that is a token as it stands."""
GPT2 = ("gpt-2", "phi-2", "mpt", "olmo")
"""Names of the splitting of a text that `transformers` takes for names that it does not know."""
DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""That splitting, but with every digit alone: the same where no merge joins a digit."""

DESCRIBES = re.compile(
    r"GGUF\.\w+"
    r"|general\.(?!type$|sampling\.(penalty_repeat|xtc_probability|mirostat)$)[\w.]+"
    r"|quantize\.imatrix\.\w+|split\.(no|tensors\.count)"
    r"|tokenizer\.chat_template(s|\.\w+)|tokenizer\.huggingface\.json"
    r"|tokenizer\.ggml\.(token_type_count|(seperator|cls|mask|prefix|suffix|middle)_token_id)"
    r"|tokenizer\.ggml\.fim_\w+_token_id"
)
"""Keys that change no token of an answer: they describe the file, name tokens that only a template
or a caller sets, or hold what another program reads in place of what is read here."""
NEEDED = re.compile("(context|embedding)_length|block_count|attention.(head_count|.*_epsilon)")
"""Keys without which `transformers` takes a number of its own."""
SHAPES = {"attention.key_length", "attention.value_length"}
"""What the shapes of the tensors say too, which must fit the model."""
NEUTRAL: Mapping[str, Any] = {
    "general.type": "model",
    "general.sampling.penalty_repeat": 1,
    "general.sampling.xtc_probability": 0,
    "general.sampling.mirostat": 0,
    "split.count": 1,
    "tokenizer.ggml.add_eos_token": False,
    "tokenizer.ggml.add_sep_token": False,
    "tokenizer.ggml.remove_extra_whitespaces": False,
    "attention.causal": True,
    "attention.clamp_kqv": 0,
    "attention.max_alibi_bias": 0,
    "expert_count": 0,
    "expert_used_count": 0,
    "nextn_predict_layers": 0,
    "pooling_type": 0,
    "logit_scale": 1,
    "residual_scale": 1,
    "embedding_scale": 1,
    "use_parallel_residual": False,
    "tensor_data_layout": "Meta AI original pth",
    "rope.scaling.attn_factor": 1,
    "rope.scaling.yarn_ext_factor": 1,
    "rope.scaling.yarn_attn_factor": 1,
}
"""Key, of an architecture without its name, -> the value with which it does nothing."""
ROPE = ("type", "factor", "original_context_length", "yarn_beta_fast", "yarn_beta_slow")
SCALING = {f"rope.scaling.{name}" for name in (*ROPE, "finetuned")} | {"rope.scale_linear"}
"""What `rope` applies, and one that says how the model was made."""


def check_keys(architecture: str, keys: Keys) -> None:
    """Raises ValueError, one line, for a key that is neither read nor known to change nothing."""
    if architecture not in GGUF_CONFIG_MAPPING:
        raise ValueError(f"transformers cannot read its architecture {architecture}")
    settings: Any = GGUF_CONFIG_MAPPING[architecture]
    read = {name for name, to in settings.items() if to}
    names = set(GGUF_TOKENIZER_MAPPING["tokenizer"]) | {"chat_template", "ggml.add_bos_token"}
    read |= {f"tokenizer.{name}" for name in names - {"ggml.add_space_prefix", "ggml.pre"}}
    read |= SCALING | SHAPES | {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}
    needed = [f"{architecture}.{name}" for name in read if NEEDED.fullmatch(name)]
    if keys.get("tokenizer.ggml.model") == "gpt2":
        needed.append("tokenizer.ggml.pre")
    if missing := sorted(set(needed) - keys.keys()):
        raise ValueError(f"it does not say {' and '.join(missing)}")
    wrong = []
    for key, value in keys.items():
        name = key.removeprefix(f"{architecture}.")
        if not (name in read or DESCRIBES.fullmatch(key) or _is_neutral(architecture, name, keys)):
            wrong.append(f"{key}={value!r:.40}")
    wrong += [f"end token {token!r}" for token in end_tokens(keys) if not isinstance(token, int)]
    if wrong:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        raise ValueError(f"what it says by {', '.join(wrong[:4])}{more} is not applied here")
    rope(architecture, keys, None)


def _is_neutral(architecture: str, name: str, keys: Keys) -> bool:
    """Whether the key has the value with which it does nothing, in this file."""
    try:
        return _has_neutral_value(architecture, name, keys)
    except TypeError:  # a text where a number is due, or the like
        return False


def _has_neutral_value(architecture: str, name: str, keys: Keys) -> bool:

    def of(other: str, default: Any = None) -> Any:
        return keys.get(f"{architecture}.{other}", default)

    value, model = keys.get(name, of(name)), keys.get("tokenizer.ggml.model")
    if name == "rope.dimension_count":
        heads, hidden = of("attention.head_count"), of("embedding_length")
        return bool(value == of("attention.key_length") or value * heads == hidden)
    if name == "attention.sliding_window":
        return bool(value == 0 or value >= of("context_length", 1 << 62))
    if name == "tokenizer.ggml.add_space_prefix":
        return bool(value) == (model == "llama" and not architecture.startswith("gemma"))
    if name == "tokenizer.ggml.pre":
        merged = "".join(keys.get("tokenizer.ggml.merges", ()))
        return (
            model != "gpt2"
            or value in GGUF_PRE_TOKENIZER_SPLITS
            or value in GPT2
            or (value in DIGITS and not re.search("[0-9]", merged))
        )
    return name in NEUTRAL and bool(value == NEUTRAL[name])


def rope(architecture: str, keys: Keys, factors: Sequence[float] | None) -> dict[str, Any] | None:
    """The scaling of RoPE as a config.json of transformers has it; None for none. `factors`: what
    each frequency is divided by (`rope_freqs.weight`), None where the file has none. Raises
    ValueError, one line."""

    def of(name: str, default: Any = None) -> Any:
        return keys.get(f"{architecture}.{name}", default)

    kind, context = of("rope.scaling.type"), of("context_length")
    factor = of("rope.scaling.factor") or of("rope.scale_linear")
    base = {"rope_theta": float(of("rope.freq_base", 10000.0))}
    if kind not in (None, "none", "linear", "yarn"):
        raise ValueError(f"its RoPE scaling {kind!r} is not applied here, only linear and yarn")
    if factor is not None and not (np.isfinite(factor) and factor > 0):
        raise ValueError(f"its RoPE scaling has the factor {factor}, which must be above 0")
    scaled = kind != "none" and factor not in (None, 1)
    if kind in ("linear", "yarn") and factor is None:
        raise ValueError(f"its RoPE scaling {kind!r} has no factor")
    if factors is not None:
        if scaled:
            raise ValueError(f"it scales RoPE twice, by {ROPE_FREQS} and by rope.scaling")
        if not (np.isfinite(factors).all() and min(factors) > 0):
            raise ValueError(f"{ROPE_FREQS} must hold numbers above 0")
        return base | {
            "rope_type": "longrope",  # the form with a number for each frequency
            "short_factor": list(factors),
            "long_factor": list(factors),
            "factor": 1.0,
            "attention_factor": 1.0,
            "original_max_position_embeddings": context,
        }
    if not scaled:
        return None
    if kind != "yarn":
        return base | {"rope_type": "linear", "factor": float(factor)}
    yarn = base | {
        "rope_type": "yarn",
        "factor": float(factor),
        "original_max_position_embeddings": of("rope.scaling.original_context_length", context),
    }
    for name, key in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        if (value := of(f"rope.scaling.{name}")) is not None:
            yarn[key] = float(value)
    return yarn


def scaled(config: Any, scaling: Mapping[str, Any] | None) -> Any:
    """A copy of a config with the scaling of `rope`. Raises ValueError, one line, for a model whose
    RoPE is not of one base, and for a wrong count of factors."""
    config = deepcopy(config)
    if scaling is not None:
        plain = getattr(config, "rope_parameters", None) or {}
        if not plain.keys() <= {"rope_type", "rope_theta"}:
            raise ValueError(f"scaled RoPE of a {config.model_type} model is not applied here")
        width = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        factors = scaling.get("short_factor")
        if factors is not None and 2 * len(factors) != width:
            raise ValueError(f"{ROPE_FREQS} has {len(factors)} numbers for heads of {width}")
        config.rope_parameters = dict(scaling)
    return config


def check_tensors(architecture: str, names: Sequence[str], model: Any) -> None:
    """Raises ValueError, one line, for a tensor that `transformers` puts nowhere in the model."""
    processors: Mapping[str, Any] = TENSOR_PROCESSORS
    processor = processors.get(architecture, TensorProcessor)(config={})
    places: dict[str, str] = get_gguf_hf_weights_map(model, processor)
    taken = places.keys() | {ROPE_FREQS}
    unread = [name for name in names if not {name, name.removesuffix(".weight")} & taken]
    if unread:
        more = f" and {len(unread) - 4} more" if len(unread) > 4 else ""
        raise ValueError(
            f"its tensors {', '.join(unread[:4])}{more} have no place in a model of architecture "
            f"{architecture}"
        )


def end_tokens(keys: Keys) -> list[int]:
    """The ids that end an answer: of a text, of a turn, of a message."""
    named = [keys.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    return list(dict.fromkeys(token for token in named if token is not None))


def finish_tokenizer(keys: Keys, tokenizer: Any) -> None:
    """Give the tokenizer what the name of its splitting says beside the splitting."""
    if keys.get("tokenizer.ggml.pre") in LLAMA3:
        tokenizer.backend_tokenizer.model.ignore_merges = True
        tokenizer.add_bos_token = keys.get("tokenizer.ggml.add_bos_token", True)
