"""What a model's config.json and generation_config.json decide: its decoder, how it divides, and
what decoding they ask for. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any, Literal

from methods.engine.source import ModelError, ModelSource, read_json

DecoderName = Literal["auto", "lean", "transformers"]
"""What engine.decoder can be: auto stands for lean where it can run the model."""
EngineName = Literal["native", "vllm"]
VLLM_SUPPORTED = "0.32."
"""Versions of vLLM whose samplers `bench.run.vllm.extension` overrides."""
GraphsName = Literal["auto", "on", "off"]
"""What engine.graphs can be: auto stands for on with CUDA."""
PackName = Literal["auto", "off"]
"""What engine.pack can be."""
ParallelName = Literal["none", "tensor", "layers"]
"""What engine.parallel can be."""
LEAN = ("llama", "mistral", "qwen2", "qwen3")
"""Model types that the lean decoder knows; SmolLM2 and many others are of type llama."""


def obstacle(config: Mapping[str, Any]) -> str | None:
    """Why the lean decoder cannot run a model with this config.json, or None."""
    kind = config.get("model_type")
    if kind not in LEAN:
        return f"its model_type is {kind}, not one of {', '.join(LEAN)}"
    if config.get("auto_map"):
        return "it brings model code of its own"
    if config.get("quantization_config"):
        return "its weights are quantised"
    if (activation := config.get("hidden_act", "silu")) != "silu":
        return f"its hidden_act is {activation}, not silu"
    default = 4096 if kind == "mistral" else None  # as transformers reads a silent file
    windowed = kind == "mistral" or config.get("use_sliding_window", False)
    if windowed and config.get("sliding_window", default) is not None:
        return "it attends through a sliding window"
    return None


def resolve(
    source: str, config: Mapping[str, Any], decoder: DecoderName
) -> Literal["lean", "transformers"]:
    """What `decoder` stands for, for the model `source` with this config.json. Raises ModelError,
    one line, for a lean decoder that cannot run it."""
    if decoder == "transformers":
        return "transformers"
    if (why := obstacle(config)) is None:
        return "lean"
    if decoder == "lean":
        raise ModelError(
            f"{source}: engine.decoder=lean cannot run it: {why}; take engine.decoder=auto"
        )
    return "transformers"


def check_division(source: str, config: Mapping[str, Any], devices: int) -> None:
    """Raises ModelError, one line, where the model `source` with this config.json cannot be divided
    among so many devices (`methods/engine/tensor.py`)."""
    sizes = {
        name: int(config[key])
        for key, name in (
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "key-value heads"),
            ("intermediate_size", "units"),
        )
        if config.get(key)
    }
    common = gcd(*sizes.values())
    if common % devices:
        allowed = [str(number) for number in range(2, common + 1) if common % number == 0]
        instead = f"engine.devices={' or '.join(allowed)}, or " if allowed else ""
        raise ModelError(
            f"{source}: engine.devices={devices}: "
            f"{', '.join(f'{n} {name}' for name, n in sizes.items())} cannot be divided evenly "
            f"among {devices}; give {instead}engine.parallel=layers"
        )


FILE = "generation_config.json"
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "forced_decoder_ids": ([],),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "exponential_decay_length_penalty": (),
    "sequence_bias": ([], {}),
    "force_words_ids": ([],),
    "constraints": ([],),
    "guidance_scale": (1,),
    "watermarking_config": (),
    "stop_strings": ([], ""),
    "num_beams": (1,),
    "penalty_alpha": (0,),
}
"""Key -> the values beside null with which it does nothing."""


def unapplied(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a generation config that change logits, or the end of an answer, and are not
    applied."""
    return {
        key: values[key]
        for key, neutral in NEUTRAL.items()
        if values.get(key) is not None and values[key] not in neutral
    }


def check_generation_config(
    source: str, revision: str | None = None, *, fetch: bool = False, penalty: float = 1.0
) -> None:
    """Raises ModelError, one line, where a checkpoint asks for what is not applied. A name on the
    hub is asked with `fetch` alone. `penalty`: the repetition penalty that is applied."""
    file = ModelSource.of(source).folder / FILE
    if not file.is_file():
        if (
            not fetch
            or file.parent.is_dir()
            or ModelSource.of(source).is_gguf
            or ModelSource.of(source).is_random
        ):
            return
        from transformers.utils.hub import cached_file  # slow to import

        try:
            cached = cached_file(
                source, FILE, revision=revision, _raise_exceptions_for_missing_entries=False
            )
        except (OSError, ValueError):  # whoever loads the model says why it cannot be reached
            return
        if cached is None:
            return
        file = Path(cached)
    asked = unapplied(read_json(file))
    if asked.get("repetition_penalty") == penalty:
        del asked["repetition_penalty"]
    if asked:
        named = ", ".join(f"{key}={value!r:.60}" for key, value in asked.items())
        how = (
            f"decoding.repetition_penalty={asked['repetition_penalty']} applies it, and "
            if list(asked) == ["repetition_penalty"]
            else ""
        )
        raise ModelError(
            f"{source}: its {FILE} asks for {named}, which is not applied; "
            f"{how}pair.ignore_generation_config=true decodes without"
        )
