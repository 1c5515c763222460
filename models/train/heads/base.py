"""What every kind of head in training shares: its slots, its frozen target, its losses draft step
by draft step, how it is unrolled, and how its checkpoint is written.

A slot is a position t whose feature f_t and next token x_{t+1} are known, as after a verification:
f_t is the target's state, x_{t+1} the root. Draft step k (from 0) at slot t predicts x_{t+2+k}; the
target's own distribution of that token comes from its hidden state at t+1+k. The same holds for
EAGLE, EAGLE-3 and Medusa.

Training-time test (EAGLE-3, section 3.2): a head in training consumes its own output, as it does
when drafting. Step 0 runs over whole rows on the target's true features. Step k continues every
chosen slot t by one token, at position t + k, attending to the true features up to t and to the
slot's own steps 1 … k, as a drafted chain does. It is the drafter's own forward with such a mask
and cache."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bench.config.section import Section
from methods.engine.language_model import LanguageModel
from methods.heads.eagle import HeadModule
from models.train.packing import PackedBatch


class HeadRecipe(Section):
    """What the schedules of all kinds of heads share; conf/train_heads.yaml explains every
    field."""

    tokens: PositiveInt
    batch_tokens: PositiveInt
    row_tokens: PositiveInt
    slots: PositiveInt
    steps: PositiveInt
    step_decay: PositiveFloat
    optimiser: Literal["muon", "adamw"]
    lr: PositiveFloat
    adam_lr: PositiveFloat
    warmup: NonNegativeInt
    decay: float = Field(gt=0, le=1)
    clip: PositiveFloat
    save_every: PositiveInt
    checkpointing: bool = False

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return max(1, self.batch_tokens // self.row_tokens)

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return max(1, self.tokens // (self.rows * self.row_tokens))

    def rate(self, update: int) -> float:
        """Learning-rate factor: warm up, stay, then fall linearly to zero over the last `decay` of
        all updates."""
        return min(
            (update + 1) / max(1, self.warmup),
            1.0,
            (self.updates - update) / (self.decay * self.updates),
        )


Recipe = TypeVar("Recipe", bound=HeadRecipe)
Module = TypeVar("Module", bound=nn.Module)
Past = tuple[Tensor, ...]
"""Keys and values [B, G, N, d] in turn, oldest first."""
LAYER = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "max_position_embeddings",
    "initializer_range",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
)


def take(x: Tensor, index: Tensor) -> Tensor:
    """x [R, T, D] or [R, T] at index [R, M] -> [R, M, D] or [R, M]."""
    return x.gather(1, index if x.ndim == 2 else index[..., None].expand(-1, -1, x.shape[-1]))


@dataclass(slots=True)
class Slots:
    """The slots of a batch.

    index   [R, M] int64 positions t.
    weight  [S, R, M] float32, the loss weight of step k at each slot (0: unused).
    """

    index: Tensor
    weight: Tensor

    def after(self, x: Tensor, ahead: int) -> Tensor:
        """x [R, T, …] at t + `ahead`; beyond the row's end, its last entry (such slots weigh 0)."""
        return take(x, (self.index + ahead).clamp(max=x.shape[1] - 1))


def choose(batch: PackedBatch, steps: int, most: int, generator: torch.Generator) -> Slots:
    """At most `most` slots a row, drawn among those whose root and first draft token are answer
    tokens.

    Later steps depend only on the true features before a slot and on the slot itself, so training
    on a subset of slots is exact for these, and the unrolled steps cost M instead of T."""
    rows, length = batch.input_ids.shape
    weight = torch.zeros(steps, rows, length, device=batch.weight.device)
    for k in range(steps):
        ahead = k + 2
        if ahead < length:
            same = batch.document[:, ahead:] == batch.document[:, :-ahead]
            weight[k, :, :-ahead] = batch.weight[:, ahead:] * same
    answered = torch.zeros_like(weight[0], dtype=torch.bool)
    answered[:, :-1] = batch.weight[:, 1:] > 0
    weight = weight * (answered & (weight[0] > 0))
    lottery = torch.rand(rows, length, generator=generator).to(weight.device) + (weight[0] > 0)
    index = lottery.topk(min(most, length), dim=1).indices.sort(1).values
    return Slots(index, torch.stack([w.gather(1, index) for w in weight]))


@dataclass(slots=True)
class TargetStates:
    """The target's hidden states of a batch.

    features  [R, T, F*H] the chosen HF hidden_states, concatenated; None if none were asked for.
    hidden    [R, T, H] final-norm states.
    """

    features: Tensor | None
    hidden: Tensor


class FrozenTarget:
    """A target as the teacher of a head."""

    def __init__(self, target: LanguageModel) -> None:
        self.target = target
        self.model = target.model.requires_grad_(False)
        self.config = self.model.config.get_text_config(decoder=True)

    @property
    def final_norm(self) -> Tensor:
        """[H] weight of the norm in front of the LM head."""
        base: Any = self.model.base_model
        weight: Tensor = base.norm.weight
        return weight

    @torch.no_grad()  # not inference_mode: a head keeps these states for its backward pass
    def states(self, batch: PackedBatch, layers: tuple[int, ...] = ()) -> TargetStates:
        """One forward over packed conversations, each attending to itself only. `layers`: HF
        hidden_states indices."""
        base: Any = self.model.base_model
        out = base(
            input_ids=batch.input_ids,
            position_ids=batch.positions,
            attention_mask=self.mask(batch),
            use_cache=False,
            output_hidden_states=bool(layers),
        )
        features = torch.cat([out.hidden_states[i] for i in layers], -1) if layers else None
        return TargetStates(features, out.last_hidden_state)

    def mask(self, batch: PackedBatch) -> Tensor | dict[str, Tensor]:
        """Which tokens each token of a batch attends to, bool, as the target's decoder takes it."""
        mask = batch.attention_mask()
        near = mask
        if self.target.window:
            distance = batch.positions[:, None, :, None] - batch.positions[:, None, None, :]
            near = mask & (distance < self.target.window)
        if getattr(self.config, "layer_types", None):
            return {"full_attention": mask, "sliding_attention": near}
        return near


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Mean of `values` [R, M] under `weight` [R, M]; 0 where all weights are 0."""
    return (values * weight).sum() / weight.sum().clamp(min=1e-6)


def soft_cross_entropy(logits: Tensor, p: Tensor) -> Tensor:
    """-sum p ln q for logits of q and probabilities p, both [R, M, V] -> [R, M]."""
    return -(p * logits.float().log_softmax(-1)).sum(-1)


@torch.no_grad()
def rank_of(logits: Tensor, best: Tensor) -> Tensor:
    """How many of logits [R, M, V] exceed that of token best [R, M]; V where best is -1."""
    value = logits.gather(-1, best.clamp(min=0)[..., None])
    return torch.where(best < 0, logits.shape[-1], (logits > value).sum(-1))


@torch.no_grad()
def start_as_identity(layer: Any) -> None:
    """Zero a decoder layer's output projections: it starts by passing on its residual stream (block
    expansion)."""
    layer.self_attn.o_proj.weight.zero_()
    layer.mlp.down_proj.weight.zero_()


class HeadTrainer(ABC, Generic[Recipe, Module]):
    """One kind of head, in training for one target.

    recipe         its schedule.
    frozen_target  the target, its teacher.
    head           its parameters; those without gradients are the target's own.
    layers         HF hidden_states indices of the target that it reads (none: the final state
                   alone).
    """

    head: Module
    layers: tuple[int, ...] = ()

    def __init__(self, recipe: Recipe, frozen_target: FrozenTarget) -> None:
        self.recipe, self.frozen_target = recipe, frozen_target

    def prepare(self, batches: Callable[[int], PackedBatch]) -> None:
        """Derive from the data what must be known before training; `batches(i)` is the batch of
        update i."""

    @abstractmethod
    def steps(
        self, batch: PackedBatch, states: TargetStates, slots: Slots, noise: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Unroll the head from every slot, exactly as it drafts. Each draft step gives its loss [],
        a weighted mean over the slots, and the ranks [R, M] int64: how many tokens the head ranks
        above the target's most likely one (0: they agree; the head's vocabulary size where it lacks
        that token)."""

    @abstractmethod
    def vocabulary_parameters(self) -> list[Tensor]:
        """The matrices with an entry a token (embeddings, LM heads), which Muon does not train."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the official checkpoint format in bfloat16 safetensors."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function`; under gradient checkpointing its activations are recomputed in the
        backward pass."""
        if self.recipe.checkpointing and torch.is_grad_enabled():
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def objective(
        self, batch: PackedBatch, states: TargetStates, slots: Slots, noise: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """The sum over draft steps k of step_decay^k × loss, and all ranks [S, R, M]."""
        losses, ranks = zip(*self.steps(batch, states, slots, noise), strict=True)
        decay = [self.recipe.step_decay**k for k in range(len(losses))]
        return sum(weight * loss for weight, loss in zip(decay, losses, strict=True)), torch.stack(
            ranks
        )


class _Appending:
    """A cache for one forward: what it stores is appended to `past`."""

    def __init__(self, past: Past) -> None:
        self.past = past

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int
    ) -> tuple[Tensor, Tensor]:
        self.past = (*self.past, key_states, value_states)
        return torch.cat(self.past[::2], 2), torch.cat(self.past[1::2], 2)


def unroll(
    head: HeadModule,
    embed: Callable[[Tensor], Tensor],
    hidden: Tensor,
    batch: PackedBatch,
    slots: Slots,
    steps: int,
    run: Callable[..., Any],
) -> Iterator[Tensor]:
    """Yield the head's output [R, M, h] at the slots after draft step 0, 1, … steps-1.

    hidden [R, T, h]: fused features. embed: token ids -> embeddings. run(function, *args): calls
    the function (the hook for gradient checkpointing). Step k reads the true token t+1+k: its
    output is conditional on all earlier drafts being right, as is the acceptance of a draft."""

    def forward(
        embeddings: Tensor, hidden: Tensor, mask: Tensor, positions: Tensor, *past: Tensor
    ) -> tuple[Tensor, ...]:
        cache = _Appending(past)
        out = head(embeddings, hidden, mask=mask, rotary=head.rotary(positions), cache=cache)
        return out, *cache.past

    mask = batch.attention_mask()
    out, *past = run(forward, embed(batch.input_ids.roll(-1, 1)), hidden, mask, batch.positions)
    out = take(out, slots.index)
    yield out
    index = slots.index
    mask = mask.gather(2, index[:, None, :, None].expand(-1, 1, -1, mask.shape[-1]))
    itself = torch.eye(index.shape[1], dtype=torch.bool, device=index.device).expand(
        len(index), 1, -1, -1
    )
    positions = take(batch.positions, index)
    for k in range(1, steps):
        mask = torch.cat([mask, itself], -1)
        out, *past = run(
            forward, embed(slots.after(batch.input_ids, 1 + k)), out, mask, positions + k, *past
        )
        yield out


def layer_settings(config: Any) -> dict[str, Any]:
    """A head's config.json for a target with this text config: one layer of the target's shape.
    RoPE base 10000, as in the official heads; readers assume it where none is given."""
    settings = {key: getattr(config, key, None) for key in LAYER}
    if settings["head_dim"] is None:
        settings["head_dim"] = config.hidden_size // config.num_attention_heads
    return settings | {
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": 1,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    file: str = "model.safetensors",
) -> None:
    """Write `folder`/config.json and `folder`/`file`: floating-point tensors as bfloat16, the
    others unchanged. The config is written first, so a folder with weights is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
    plain = {
        name: (t.to(torch.bfloat16) if t.is_floating_point() else t).detach().cpu().contiguous()
        for name, t in tensors.items()
    }
    save_file(plain, folder / file, metadata={"format": "pt"})
