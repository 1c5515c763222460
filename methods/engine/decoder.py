"""A lean decoder: dense models of the Llama family on the weights that transformers loaded, without
its modules.

A layer runs in as few operations as its mathematics has. Projections that read the same input
become one matrix product: their weights move into one tensor and the module's parameters become
views of it, so nothing is held twice and the module still works. Residual stream and projections
have shape [T, width], T = B * N; only attention sees rows and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from methods.engine.cache import SlotCache
from methods.engine.processor import KERNELS
from methods.engine.products import Matrix, Products


@dataclass(slots=True)
class NodePlaces:
    """Where the nodes of one forward stand.

    cache     receives their keys and values, after `SlotCache.begin`.
    cos, sin  [B or 1, N, 1, d] of their positions; the first half of `sin` is negated (`Rotary`).
    mask      [B or 1, 1, N * r, L] additive, for the r query heads of a group at each node
              (`fold`); None: causal from slot 0, for N > 1, or everything, for N = 1.
    """

    cache: SlotCache
    cos: Tensor
    sin: Tensor
    mask: Tensor | None


def fold(mask: Tensor | None, repeats: int) -> Tensor | None:
    """An additive mask [B or 1, 1, N, L] -> [B or 1, 1, N * repeats, L], for `NodePlaces`."""
    if mask is None or repeats == 1 or mask.shape[2] == 1:
        return mask
    return mask.unsqueeze(3).expand(-1, -1, -1, repeats, -1).flatten(2, 3)


def positions_of(config: Any) -> int:
    """Tokens of a text at most: beyond them longrope and dynamic scaling change the frequencies of
    a whole forward, whatever else is in its batch."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return int(rope["original_max_position_embeddings"])
    return int(
        getattr(config, "max_position_embeddings", None)
        or getattr(config, "max_seq_len", None)
        or 1 << 30
    )


class Rotary:
    """Tables of rotary embeddings, computed by the module that transformers has for the model.

    Rotation is x * cos + roll(x, d/2) * sin, with the first half of sin negated."""

    def __init__(self, module: nn.Module, dtype: torch.dtype, positions: int):
        """`positions`: as `positions_of`."""
        self.module, self.dtype, self.positions = module, dtype, positions
        # kept: graphs read them where they are
        self.tables: dict[tuple[int, torch.device], Tensor] = {}

    def at(self, positions: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """cos, sin [B, N, 1, d] at `positions` [B, N] int64, all below `slots`."""
        key = 1 << (slots - 1).bit_length(), positions.device
        if key not in self.tables:
            places = torch.arange(key[0], device=positions.device).clamp(max=self.positions - 1)
            self.tables[key] = torch.stack(self._computed(places[None]), 2)[0]
        chosen = self.tables[key].index_select(0, positions.flatten())
        cos, sin = chosen.view(*positions.shape, *chosen.shape[1:]).unbind(2)
        return cos, sin

    def _computed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.module(torch.empty(0, dtype=self.dtype, device=positions.device), positions)
        half = sin.shape[-1] // 2
        return cos[:, :, None], torch.cat([-sin[..., :half], sin[..., half:]], -1)[:, :, None]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., in], weight [out, in] -> [..., out], as F.linear; on the CPU in float32 by oneDNN
    where the table of the processor names it."""
    fits = (
        x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    )
    if fits and x.numel() >= KERNELS.plain * x.shape[-1] and not torch.is_grad_enabled():
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


class Product(nn.Linear):
    """A linear layer on its packed weight, `matrix`, or by `linear`."""

    matrix: Matrix | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy has weights of its own."""
        return {name: value for name, value in vars(self).items() if name != "matrix"}

    def forward(self, input: Tensor) -> Tensor:
        if self.matrix is None or torch.is_grad_enabled():
            return linear(input, self.weight, self.bias)
        return self.matrix(input.reshape(-1, input.shape[-1])).view(*input.shape[:-1], -1)


def pack(module: nn.Module, products: Products | None) -> None:
    """Give all `Product`s of a module their packed weights."""
    if products is None or not products.serves:
        return
    for part in module.modules():
        if isinstance(part, Product):
            part.matrix = products.matrix(part.weight, part.bias)


class Projection:
    """Linear layers of one input as one matrix product, their outputs side by side.

    weight  [out, in]. On the CPU in float32 its columns are contiguous (the matrix product of a few
            tokens is a quarter faster), elsewhere its rows, as in nn.Linear.
    matrix  what multiplies it.
    """

    def __init__(self, *linears: nn.Linear, products: Products | None = None):
        self.weight = _joined([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        self.bias = torch.cat([bias.detach() for bias in biases]) if biases else None
        self.matrix = (products or Products(False)).matrix(self.weight, self.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self.matrix(x)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + projection of x."""
        return self(x).add_(residual)


def _joined(weights: Sequence[Tensor]) -> Tensor:
    """Weights [out_i, in] -> [sum of out_i, in]; the parameters become views of it. Joined ones are
    taken as they are."""
    first = weights[0]
    *starts, width = accumulate((len(weight) for weight in weights), initial=0)
    size = first.shape[1]
    by_columns = first.device.type == "cpu" and first.dtype == torch.float32
    strides = (1, width) if by_columns else (size, 1)
    if all(
        weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and weight.stride() == strides
        and weight.storage_offset() == first.storage_offset() + start * strides[0]
        for weight, start in zip(weights, starts, strict=True)
    ):
        return first.detach().as_strided((width, size), strides)
    with torch.inference_mode(False), torch.no_grad():  # the parameters must stay fit for training
        joined = torch.empty_strided((width, size), strides, dtype=first.dtype, device=first.device)
        for weight, start in zip(weights, starts, strict=True):
            view = joined[start : start + len(weight)]
            view.copy_(weight)
            weight.data = view
    return joined


@cache
def _floor(eps: float) -> Tensor:
    return torch.tensor(eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm over the last dimension of x [..., H], without gradients; weight [H] or [n, H].

    F.rms_norm is one kernel on a GPU and a dozen on the CPU, where these are five."""
    size = weight.shape[-1:]
    if x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32:
        length = torch.linalg.vector_norm(x, 2, -1, True)
        scale = torch.addcmul(_floor(eps), length, length, value=1 / size[0]).rsqrt_()
        return (x * scale).mul_(weight)
    if weight.dim() == 1:
        return F.rms_norm(x, size, weight, eps)
    return F.rms_norm(x, size, None, eps) * weight


class Norm:
    """`rms_norm` with a weight [H] or [n, H]."""

    def __init__(self, weight: Tensor, eps: float):
        self.weight, self.eps = weight.detach(), eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class DecoderLayer:
    """Attention and feed-forward network of one layer, for the modules `attention` (q_proj, k_proj,
    v_proj, o_proj and, in Qwen3, q_norm and k_norm), `mlp` (gate_proj, up_proj, down_proj) and the
    norm before the latter."""

    def __init__(
        self,
        attention: Any,
        mlp: Any,
        norm: Any,
        config: Any,
        index: int,
        products: Products | None = None,
    ):
        self.heads: int = config.num_attention_heads
        self.groups: int = config.num_key_value_heads or self.heads
        self.dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.index, self.eps, self.scale = index, config.rms_norm_eps, self.dim**-0.5
        self.qkv = Projection(
            attention.q_proj, attention.k_proj, attention.v_proj, products=products
        )
        self.out = Projection(attention.o_proj, products=products)
        self.gate_up = Projection(mlp.gate_proj, mlp.up_proj, products=products)
        self.down = Projection(mlp.down_proj, products=products)
        self.norm = Norm(norm.weight, self.eps)
        self.head_norms: Tensor | None = None  # [H + G, d] weights of the norms of queries and keys
        if hasattr(attention, "q_norm"):
            scales = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
            self.head_norms = torch.cat(
                [scales[0].expand(self.heads, -1), scales[1].expand(self.groups, -1)]
            )

    def __call__(self, x: Tensor, residual: Tensor, place: NodePlaces) -> Tensor:
        """x: what attention reads, residual: what its output is added to, both [T, ·] -> the
        layer's output [T, H]."""
        hidden = self.out.add(residual, self._attention(x, place))
        gate, up = self.gate_up(self.norm(hidden)).chunk(2, -1)
        return self.down.add(hidden, F.silu(gate).mul_(up))

    def _attention(self, x: Tensor, place: NodePlaces) -> Tensor:
        heads, groups, dim = self.heads, self.groups, self.dim
        nodes = place.cos.shape[1]
        qkv = self.qkv(x).view(-1, nodes, heads + 2 * groups, dim)
        rotated = qkv.narrow(2, 0, heads + groups)
        normed = rotated
        if self.head_norms is not None:
            normed = F.rms_norm(rotated, (dim,), None, self.eps) * self.head_norms
        torch.addcmul(normed * place.cos, normed.roll(dim // 2, -1), place.sin, out=rotated)
        key, value = place.cache.write(self.index, qkv.narrow(2, heads, 2 * groups))
        query, scale = qkv.narrow(2, 0, heads), self.scale
        if place.mask is None and nodes > 1:
            states = F.scaled_dot_product_attention(
                query.transpose(1, 2),
                key,
                value,
                is_causal=True,
                scale=scale,
                enable_gqa=heads != groups,
            )
            return states.transpose(1, 2).reshape(x.shape[0], -1)
        # a group's heads join the query axis, so that no key or value is copied
        repeats = heads // groups
        if nodes == 1:
            query = query.reshape(-1, groups, repeats, dim)
        else:
            query = (
                query.reshape(-1, nodes, groups, repeats, dim)
                .transpose(1, 2)
                .reshape(-1, groups, nodes * repeats, dim)
            )
        states = F.scaled_dot_product_attention(
            query, key, value, attn_mask=place.mask, scale=scale
        )
        if nodes == 1:
            return states.reshape(x.shape[0], -1)
        return states.view(-1, groups, nodes, repeats, dim).transpose(1, 2).reshape(x.shape[0], -1)


class Decoder:
    """Embedding, layers, final norm and LM head of one model.

    The model's modules share all weights; they must not be moved or cast afterwards."""

    def __init__(self, model: Any, products: Products | None = None):
        body, self.config = model.base_model, model.config
        self.embedding: nn.Embedding = body.embed_tokens
        self.norms = [
            Norm(layer.input_layernorm.weight, self.config.rms_norm_eps) for layer in body.layers
        ]
        self.norms.append(Norm(body.norm.weight, self.config.rms_norm_eps))
        self.blocks = [
            DecoderLayer(
                layer.self_attn,
                layer.mlp,
                layer.post_attention_layernorm,
                self.config,
                index,
                products,
            )
            for index, layer in enumerate(body.layers)
        ]
        self.rotary = Rotary(body.rotary_emb, model.dtype, positions_of(self.config))
        self.head: nn.Linear = model.get_output_embeddings()
        if type(self.head) is nn.Linear:
            self.head.__class__ = (
                Product  # its hooks, by which a profile knows the head's share, stay
            )
        pack(self.head, products)
        self.repeats = self.blocks[0].heads // self.blocks[0].groups

    @torch.no_grad()
    def __call__(
        self,
        tokens: Tensor,
        cache: SlotCache,
        positions: Tensor,
        mask: Tensor | None,
        *,
        keep: Tensor | int = 0,
        hidden: bool = False,
        features: tuple[int, ...] = (),
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """tokens [B, N], positions [B or 1, N], mask [B or 1, 1, N, L] additive or None (causal
        from slot 0, or N = 1) -> logits [B, n, V] float32, final-norm states [B, N, H] and features
        [B, N, F*H], or None."""
        rows, nodes = tokens.shape
        cos, sin = self.rotary.at(positions, cache.slots)
        place = NodePlaces(cache, cos, sin, fold(mask, self.repeats))
        last = len(self.blocks)
        states: dict[int, Tensor] = {}
        wanted = {index % (last + 1) for index in features}
        x = F.embedding(tokens.flatten(), self.embedding.weight)
        for index in range(last):
            if index in wanted:
                states[index] = x.to(tokens.device)
            x = self.layer(index, x, place)
        x = x.view(rows, nodes, -1)
        if hidden or last in wanted:
            states[last] = x = self.norms[-1](x)
            x = _kept(x, keep)
        else:
            x = self.norms[-1](_kept(x, keep))
        logits = self.head(x).float()
        picked = [states[index % (last + 1)].view(rows, nodes, -1) for index in features]
        joined = torch.cat(picked, -1) if picked else None
        return logits, states[last] if hidden else None, joined

    def layer(self, index: int, x: Tensor, place: NodePlaces) -> Tensor:
        """One layer: residual stream [T, H] -> [T, H]."""
        return self.blocks[index](self.norms[index](x), x, place)


def _kept(x: Tensor, keep: Tensor | int) -> Tensor:
    """The positions of [B, N, H] that transformers' `logits_to_keep` names: 0 all, n the last n, or
    an index [n]."""
    if isinstance(keep, Tensor):
        return x[:, keep]
    return x[:, -keep:]  # of 0: all
