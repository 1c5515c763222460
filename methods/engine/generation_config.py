"""What a checkpoint's generation_config.json asks of decoding beyond sampling, which `decoding` sets, and the end of an
answer.

transformers' `generate`, vLLM and lm-eval change logits by these, greedy too. Most depend on the tokens before, so that
every node of a draft would need logits of its own; no rule here was defined with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods.engine.source import ModelError, Source, read_json

FILE = "generation_config.json"
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,), "encoder_repetition_penalty": (1,), "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,), "bad_words_ids": ([],), "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],), "forced_bos_token_id": (), "forced_eos_token_id": (), "forced_decoder_ids": ([],),
    "min_length": (0,), "min_new_tokens": (0,), "exponential_decay_length_penalty": (), "sequence_bias": ([], {}),
    "force_words_ids": ([],), "constraints": ([],), "guidance_scale": (1,), "watermarking_config": (),
    "stop_strings": ([], ""), "num_beams": (1,), "penalty_alpha": (0,)}
"""Key -> the values beside null with which it does nothing."""


def unapplied(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a generation config that change logits, or the end of an answer, and are not applied."""
    return {key: values[key] for key, neutral in NEUTRAL.items()
            if values.get(key) is not None and values[key] not in neutral}


def check_generation_config(source: str, revision: str | None = None, *, fetch: bool = False) -> None:
    """Raises ModelError, one line, where a checkpoint asks for what is not applied. A name on the hub is asked with
    `fetch` alone."""
    file = Source.of(source).folder / FILE
    if not file.is_file():
        if not fetch or file.parent.is_dir() or Source.of(source).is_gguf or Source.of(source).is_random:
            return
        from transformers.utils.hub import cached_file  # slow to import

        try:
            found = cached_file(source, FILE, revision=revision, _raise_exceptions_for_missing_entries=False)
        except (OSError, ValueError):  # whoever loads the model says why it cannot be reached
            return
        if found is None:
            return
        file = Path(found)
    if asked := unapplied(read_json(file)):
        named = ", ".join(f"{key}={value!r:.60}" for key, value in asked.items())
        raise ModelError(f"{source}: its {FILE} asks for {named}, which no method here applies; "
                         "pair.ignore_generation_config=true decodes without")
