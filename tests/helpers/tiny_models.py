"""Small randomly initialised models in the Hugging Face format, and prompts for them."""

from __future__ import annotations

import copy
import json
import random
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from methods.engine import attention
from methods.engine.language_model import LanguageModel
from methods.engine.loading import SIZES
from methods.engine.source import CUT

VOCAB = 64
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
ARCHITECTURES = {
    "llama": {},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"head_dim": 24},
    "gemma2": {"head_dim": 24, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}


class NoTokenizer:
    """Stands where a tokenizer would: the tests speak token ids, and a token's text is its
    number."""

    eos_token_id = None
    chat_template = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1]

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, ids))


def model_of(config: Any) -> nn.Module:
    """The float32 model of a configuration, with the engine's attention."""
    return AutoModelForCausalLM.from_config(
        config, attn_implementation=attention.NAME, dtype=torch.float32
    ).eval()


@torch.no_grad()
def decided(model: nn.Module, spread: float = 0.35):
    """Draw matrices anew, so that the model's choices are clear-cut."""
    for weight in model.parameters():
        if weight.ndim > 1:
            weight.normal_(0, spread)


def save_checkpoint(folder: Path, raw: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    """config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(kept, folder / "model.safetensors")
    return folder


_SHARED: dict[str, tuple[nn.Module, int]] = {}
"""The models that tests share, each with the checksum of its weights."""


def checksum(model: nn.Module) -> int:
    found = 0
    for weight in model.state_dict().values():
        found = zlib.crc32(weight.contiguous().numpy(), found)
    return found


def share(name: str, model: nn.Module):
    """Watch a model that several tests use: none of them may change its weights."""
    _SHARED[name] = model, checksum(model)


def changed_models() -> list[str]:
    """The names of shared models whose weights have changed since the last look; the next test gets
    new ones."""
    changed = [name for name, (model, before) in _SHARED.items() if checksum(model) != before]
    for name in changed:
        del _SHARED[name]
        language_model.cache_clear()
    return changed


@cache
def language_model(
    kind: str = "llama", *, layers: int = 2, seed: int = 0, vocab: int = VOCAB
) -> LanguageModel:
    """A float32 model of the given architecture, shared by all tests, none of which may change it
    (`changed_models`); weights are scaled up so that its choices are clear-cut."""
    torch.manual_seed(seed)
    sizes = SHAPE | {"vocab_size": vocab, "num_hidden_layers": layers}
    ids = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}
    model = model_of(AutoConfig.for_model(kind, **sizes, **ids, **ARCHITECTURES[kind]))
    decided(model)
    made = LanguageModel(f"{kind}-{layers}-{seed}", model, NoTokenizer(), "test")
    share(f"{made.source} of {vocab} tokens", model)
    return made


def noisy_copy(target: LanguageModel) -> LanguageModel:
    """A draft model that disagrees with the target now and then."""
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in draft.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return draft


def save_cut(folder: Path, target: LanguageModel, shared: int, noise: float = 0.0) -> Path:
    """A cut of so many layers of the target, and of one that is the target's next with noise, as
    the norm is too."""
    body, generator = target.model.base_model, torch.Generator().manual_seed(3)
    parts = {f"layers.0.{name}": x for name, x in body.layers[shared].state_dict().items()}
    parts |= {f"norm.{name}": x for name, x in body.norm.state_dict().items()}
    for name, x in parts.items():
        parts[name] = x + noise * torch.randn(x.shape, generator=generator)
    cut = {"target": target.source, "own_layers": 1, "target_layers": shared}
    sizes = {key: getattr(target.model.config, key) for key in SIZES}
    return save_checkpoint(folder, {"architectures": [CUT]} | cut | sizes, parts)


@cache
def greedy_answers(
    kind: str, layers: int, new: int, rows: tuple[tuple[int, ...], ...], penalty: float = 1.0
) -> list[list[int]]:
    """What transformers generates, with its own attention, from `language_model(kind,
    layers=layers)` under a repetition penalty."""
    twin = copy.deepcopy(language_model(kind, layers=layers).model)
    twin.set_attn_implementation("eager")
    return [
        twin.generate(
            torch.tensor([ids]),
            max_new_tokens=new,
            do_sample=False,
            use_cache=True,
            repetition_penalty=penalty,
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        )[0, len(ids) :].tolist()
        for ids in rows
    ]


def prompts(
    count: int, *, seed: int = 0, low: int = 3, high: int = 20, vocab: int = VOCAB
) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(1, vocab) for _ in range(rng.randint(low, high))] for _ in range(count)]
