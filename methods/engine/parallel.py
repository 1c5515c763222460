"""A model divided among the ranks of a team, as Shoeybi et al. 2019, "Megatron-LM" (Section 3) divide one.

Each rank holds heads / size query and key-value heads, and intermediate_size / size units of the feed-forward network.
The projections into them are divided by outputs (rows of the weight); those out of them by inputs, so that a rank's
product is one term of a sum. The LM head is divided by tokens of the vocabulary. Embedding and norms are whole on every
rank, and so is the residual stream. A rank's part is a model with fewer heads and units: its modules, its cache and the
lean decoder need not know that there are others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from methods.engine import attention
from methods.engine.block import Product
from methods.engine.source import ModelError
from methods.engine.team import Team
from methods.engine.weights import check_finite, check_loaded

BY_OUTPUTS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
BY_INPUTS = ("o_proj", "down_proj")
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
SIZES = ("num_attention_heads", "num_key_value_heads", "intermediate_size")
"""What of a configuration is divided."""


class Term(Product):
    """A linear layer of which each rank computes one term of a sum."""

    team: Team

    def total(self, part: Tensor) -> Tensor:
        """The sum of all ranks' terms."""
        return self.team.sum(part)

    def forward(self, input: Tensor) -> Tensor:
        return self.total(super().forward(input))


class DividedHead(Product):
    """An LM head of which each rank computes the logits of some tokens, the same number each.

    tokens  of the whole vocabulary; the last rank's part may be longer.
    """

    team: Team
    tokens: int

    def forward(self, input: Tensor) -> Tensor:
        return self.team.gather(super().forward(input))[..., :self.tokens]

    def whole(self) -> Tensor:
        """[V, H] the weight of all ranks."""
        return self.team.gather(self.weight.detach().t()).t()[:self.tokens]


def load_part(source: str, folder: Path, team: Team, *, dtype: torch.dtype, device: str) -> Any:
    """This rank's part of the model in a folder of safetensors files, each slice read straight onto `device`. Raises
    ModelError."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{source}: no safetensors files, and engine.parallel=tensor reads no others; give "
                         "engine.parallel=layers")
    part = _empty(AutoConfig.from_pretrained(folder), team, dtype)
    wanted, tensors, unexpected = part.state_dict(), dict[str, Tensor](), list[str]()
    for file in files:
        with safe_open(file, framework="pt", device=_place(device)) as opened:
            for name in opened.keys():  # noqa: SIM118  not a mapping
                if name in wanted:
                    tensors[name] = piece(name, opened.get_slice(name), team).to(dtype)
                else:
                    unexpected.append(name)
    _fill(source, part, tensors, unexpected, team, device)
    if (folder / "generation_config.json").is_file():
        part.generation_config = GenerationConfig.from_pretrained(folder)
    return part


def part_of(source: str, model: Any, team: Team, device: str) -> Any:
    """This rank's part of a whole model."""
    part = _empty(model.config, team, model.dtype)
    tensors = {name: piece(name, tensor, team).clone().to(device) for name, tensor in model.state_dict().items()}
    _fill(source, part, tensors, [], team, device)
    return part


def _place(device: str) -> str:
    """`cuda` is the rank's own GPU, which safetensors does not know."""
    return f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device


def _empty(whole: Any, team: Team, dtype: torch.dtype) -> Any:
    """The part as a model without weights."""
    config = copy.deepcopy(whole)
    config.head_dim = getattr(whole, "head_dim", None) or whole.hidden_size // whole.num_attention_heads
    for key in SIZES:
        size = getattr(whole, key, None) or whole.num_attention_heads
        setattr(config, key, size // team.size)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.NAME).eval()


def _fill(source: str, part: Any, tensors: dict[str, Tensor], unexpected: list[str], team: Team, device: str) -> None:
    """Give a part its weights. Raises ModelError where they do not fit."""
    config = part.config
    if config.tie_word_embeddings and EMBEDDING in tensors:
        tensors[HEAD] = piece(HEAD, tensors[EMBEDDING], team)
    wanted = {name: parameter.shape for name, parameter in part.state_dict().items()}
    wanted[HEAD] = torch.Size((-(-config.vocab_size // team.size), config.hidden_size))
    check_loaded(source, part, {
        "missing_keys": wanted.keys() - tensors.keys(), "unexpected_keys": unexpected,
        "mismatched_keys": [(name,) for name, tensor in tensors.items() if tensor.shape != wanted.get(name)]})
    head: Any = nn.Linear(1, 1, bias=False, device="meta")
    head.weight, head.__class__, head.team, head.tokens = nn.Parameter(tensors.pop(HEAD)), DividedHead, team, \
        config.vocab_size
    part.set_output_embeddings(head)
    part.load_state_dict(tensors, strict=False, assign=True)
    check_finite(source, part.named_parameters())
    add_up(part, team)
    body = part.base_model
    with torch.device(device):
        body.rotary_emb = type(body.rotary_emb)(config=config)


def add_up(module: nn.Module, team: Team) -> None:
    """Let the layers of a part that compute terms of a sum add them up."""
    for name, layer in module.named_modules():
        if name.endswith(BY_INPUTS):
            term: Any = layer
            term.__class__, term.team = Term, team


def piece(name: str, source: Any, team: Team) -> Tensor:
    """A rank's piece of the tensor `name`, given whole or as a slice of a file. A bias that is added to a sum is rank
    0's alone; where the vocabulary has no more tokens, its head's weight is 0."""
    shape = source.shape if isinstance(source, Tensor) else source.get_shape()
    layer, kind = name.rsplit(".", 2)[-2:]
    if name == HEAD:
        size = -(-shape[0] // team.size)
        rows: Tensor = source[min(team.rank * size, shape[0]):(team.rank + 1) * size]
        return rows if len(rows) == size else F.pad(rows, (0, 0, 0, size - len(rows)))
    if layer in BY_OUTPUTS:
        size = shape[0] // team.size
        found: Tensor = source[team.rank * size:(team.rank + 1) * size]
    elif layer in BY_INPUTS and kind == "weight":
        size = shape[1] // team.size
        found = source[:, team.rank * size:(team.rank + 1) * size]
    else:
        found = source[:]
        if layer in BY_INPUTS and team.rank:
            found = torch.zeros_like(found)
    return found
