"""A causal LM from its configuration alone: on the meta device for its size, elsewhere with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from methods.engine import attention
from methods.engine.families import DecoderName
from methods.engine.fingerprints import fingerprint_of_shape
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError, Source


def from_shape(source: str, *, dtype: str, device: str, tokenizer: Path | None = None,
               trust_remote_code: bool = False, decoder: DecoderName = "auto") -> LanguageModel:
    """The model that the config.json in a (`random:`) folder describes, with weights drawn from seed 0.

    `tokenizer`: folder of the tokenizer it borrows (None: it has none). On the device "meta" it has sizes and takes no
    memory. Raises ModelError."""
    folder = Source.of(source).folder
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model = attention.installed(lambda implementation: AutoModelForCausalLM.from_config(
                config, dtype=getattr(torch, dtype), attn_implementation=implementation,
                trust_remote_code=trust_remote_code))
    except (OSError, ValueError) as error:
        raise ModelError(f"{source}: its config.json describes no causal language model: "
                         f"{str(error).splitlines()[0]}; give a folder whose config.json does") from error
    borrowed = None if tokenizer is None else AutoTokenizer.from_pretrained(tokenizer)
    return LanguageModel(source, model.eval(), borrowed, fingerprint_of_shape(source), decoder)


def nbytes(module: torch.nn.Module, beside: torch.nn.Module | None = None) -> int:
    """Bytes of a module's parameters and buffers, shared ones once; those it shares with the module `beside`, not."""
    shared = set() if beside is None else {id(tensor) for tensor in (*beside.parameters(), *beside.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers())
               if id(tensor) not in shared)
