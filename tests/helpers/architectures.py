"""Small random models of transformers' causal architectures, and what the engine does with them."""

from __future__ import annotations

import random
import re
from time import perf_counter
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine import attention, probe
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from tests.helpers.decoding import method_on
from tests.helpers.tiny_models import NoTokenizer

SIZES = {
    "vocab_size": 256,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "head_dim": 16,
    "sliding_window": 8,
    "attention_chunk_size": 8,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "vocab_size_per_layer_input": 256,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0,
    "ffn_dim": 48,
    "n_inner": 48,
    "word_embed_proj_dim": 32,
    "num_kv_heads": 2,
    "expert_ffn_hidden_size": 48,
    "global_head_dim": 32,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "lru_width": 32,
    "d_ff": 48,
    "d_model": 32,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 4,
    "n_heads": 4,
    "n_layers": 4,
    "n_positions": 512,
    "rotary_dim": 8,
    "attention_window_size": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
"""Of every configuration that has the key."""
PARTS = (
    ("intermediate_size", 48),
    ("experts_per_tok", 2),
    ("moe_topk", 2),
    ("num_experts", 4),
    ("num_local_experts", 4),
    ("routed_experts", 4),
)
"""Of every key that ends with this."""
OWN: dict[str, dict[str, Any]] = {
    "phi3": {"sliding_window": None},
    "qwen2": {"sliding_window": 4096},
    "qwen3": {"sliding_window": 4096},
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "falcon": {"new_decoder_architecture": True, "alibi": False},
    "mpt": {"max_seq_len": 512},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
}


def config_of(kind: str, **changes: Any) -> Any:
    """A small configuration of an architecture; `changes` win."""
    shape = AutoConfig.for_model(kind).get_text_config(decoder=True)
    keys = shape.to_dict()
    given = {key: value for key, value in SIZES.items() if key in keys}
    if (
        "qk_rope_head_dim" in keys
    ):  # its heads are all alike, and head_dim is that of their rotated part
        given |= {"num_key_value_heads": 4, "head_dim": 8}
    given |= {key: size for key in keys for part, size in PARTS if key.endswith(part)}
    return AutoConfig.for_model(
        kind,
        **(
            given
            | {"eos_token_id": 1, "bos_token_id": 2, "pad_token_id": 0}
            | OWN.get(kind, {})
            | changes
        ),
    )


def random_model(config: Any, seed: int = 0) -> LanguageModel:
    """A float32 model whose choices are clear-cut. Raises what transformers raises."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        size = sum(
            weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters()
        )
    if size > 20_000_000:
        raise ValueError(f"{size} parameters: too large")
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation=attention.NAME, dtype=torch.float32
    ).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "conv" not in name:
                weight.normal_(0, 0.35)
            elif "sinks" in name:
                weight.normal_(2, 1)
    return LanguageModel(config.model_type, model, NoTokenizer(), f"{config.model_type} {seed}")


DRAFTERS = (
    ("none", {}, 1),
    ("prompt_lookup", {}, 5),
    ("model", {}, 5),
    ("model", {"branching": [2, 2]}, 2),
    ("lookahead", {}, 5),
)
LENGTHS = (5, 20, 30)


def wrong_answers(model: LanguageModel, new: int = 12) -> tuple[list[str], set[str]]:
    """Greedy answers of a probed model that are not those of transformers' full forward, and the
    lines in which methods were refused."""
    draw = random.Random(1)
    rows = [[draw.randrange(8, 200) for _ in range(length)] for length in LENGTHS]
    with probe.unmodified(model.model):
        want = [_greedy(model, row, new)[len(row) :] for row in rows]
    wrong, refused = [], set()
    for name, options, length in DRAFTERS:
        for group in ([0], [1], [0, 1, 2]):
            try:
                draft = model if name == "model" else None
                drafter = registry.drafter(name)(**options)
                method = method_on(model, draft, drafter, length=length)
                answers = generate(
                    method, [Request(rows[i], str(i)) for i in group], Limits(new, model.eos_ids)
                )
            except ModelError as error:
                refused.add(str(error))
                continue
            wrong += [
                f"{name}{options or ''}, {LENGTHS[i]} tokens, batch of {len(group)}"
                for i, answer in zip(group, answers, strict=True)
                if answer.output_ids != want[i]
            ]
    return wrong, refused


@torch.no_grad()
def _greedy(model: LanguageModel, row: list[int], count: int) -> list[int]:
    for _ in range(count):
        row = [*row, int(model.model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax())]
        if row[-1] in model.eos_ids:
            break
    return row


def outcome(kind: str) -> tuple[str, float]:
    """What the engine does with an architecture, in words, and the seconds of its probe. Raises
    what transformers raises for one that cannot be made small."""
    model, began = random_model(config_of(kind)), perf_counter()
    try:
        found = model.findings = probe.probe(model)
    except ModelError as error:
        if "own forward of it fails" in str(error):
            raise
        return f"refused: {_reason(str(error))}", perf_counter() - began
    wrong, _ = wrong_answers(model)
    if wrong:
        return f"WRONG: {wrong[0]}", found.seconds
    lacking = [
        name for name, why in (("trees", found.trees), ("hidden states", found.states)) if why
    ]
    return f"right, but no {' and no '.join(lacking)}" if lacking else "right", found.seconds


def _reason(line: str) -> str:
    """A line of refusal without what differs from model to model."""
    line = re.sub(
        r"^\S+: |; give engine=vllm.*| \([^()]*tokens read[^()]*\)|: [\d.]+% off", "", line
    )
    return re.sub(r"(does not run on this engine's cache).*", r"\1", line)
