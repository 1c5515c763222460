"""Writing trained heads in the official checkpoint formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

LAYER = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
         "rms_norm_eps", "max_position_embeddings", "initializer_range", "pad_token_id", "bos_token_id", "eos_token_id")

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Weight files of the EAGLE heads: plain, pickled."""


def layer_settings(config: Any) -> dict[str, Any]:
    """A head's config.json for a target with this text config: one layer of the target's shape. RoPE base 10000, as in
    the official heads; readers assume it where none is given."""
    settings = {key: getattr(config, key, None) for key in LAYER}
    if settings["head_dim"] is None:
        settings["head_dim"] = config.hidden_size // config.num_attention_heads
    return settings | {"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "rope_theta": 10000.0,
                    "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def write_checkpoint(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any],
                     file: str = "model.safetensors") -> None:
    """Write `folder`/config.json and `folder`/`file`: floating-point tensors as bfloat16, the others unchanged.

    A name that ends in .pt or .bin is written by torch.save (the official Medusa and EAGLE files), any other as
    safetensors. The config is written first, so a folder with weights is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
    plain = {name: (t.to(torch.bfloat16) if t.is_floating_point() else t).detach().cpu().contiguous()
             for name, t in tensors.items()}
    if Path(file).suffix in (".pt", ".bin"):
        torch.save(plain, folder / file)
    else:
        save_file(plain, folder / file, metadata={"format": "pt"})
