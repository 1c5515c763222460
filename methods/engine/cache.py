"""A key-value cache of fixed size whose rows have different lengths, all on the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PretrainedConfig

from methods.engine.upload import upload

BUCKET = 64
"""A forward attends over a multiple of this many slots, so that few shapes occur."""


class SlotCache(Cache):
    """Keys and values of `rows` sequences in `slots` preallocated places each.

    A forward of N nodes writes row b's slots lengths[b] … lengths[b]+N-1; nothing is committed until `commit`. Slots
    behind a row's committed length hold leftovers that the attention mask hides, so a rollback costs nothing.

    lengths   committed tokens of each row, as host integers; setting them sets `starts`.
    starts    [B] int64, the same on the device: what masks, positions and writes are computed from.
    store     [layers, rows, slots, 2, G, d]: a token's keys and values are contiguous, so that one copy writes both.
    slot_ids  [slots] int64, 0, 1, …
    """

    def __init__(self, config: PretrainedConfig, rows: int, slots: int, *, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        config = config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.store = torch.zeros(config.num_hidden_layers, rows, slots, 2, heads, dim, dtype=dtype, device=device)
        self.slots, self.visible = slots, 0
        self.slot_ids = torch.arange(slots, device=device)
        self.starts = torch.zeros(rows, dtype=torch.int64, device=device)
        self._first = torch.arange(rows, device=device) * slots  # [B] of each row, over all rows' slots
        self._index = self.starts
        self._lengths = [0] * rows

    @property
    def lengths(self) -> list[int]:
        return self._lengths

    @lengths.setter
    def lengths(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self.starts.copy_(upload(lengths, self.device), non_blocking=True)

    def advance(self, nodes: int) -> None:
        """Commit the last forward's first `nodes` nodes of every row."""
        self._lengths = [length + nodes for length in self._lengths]
        self.starts += nodes

    @property
    def keys(self) -> Tensor:
        """[layers, rows, G, slots, d], a view."""
        return self.store[:, :, :, 0].transpose(2, 3)

    @property
    def values(self) -> Tensor:
        """[layers, rows, G, slots, d], a view."""
        return self.store[:, :, :, 1].transpose(2, 3)

    @property
    def device(self) -> torch.device:
        return self.store.device

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    def begin(self, nodes: int, behind: int = 0, room: int | None = None) -> Tensor:
        """Prepare to write `nodes` per row, `behind` slots after the committed ones; returns their slots [B, N].

        The forward attends over `visible` slots: those of the nodes alone in an empty cache, otherwise the bucket that
        holds the longest row and `room` more (None: the nodes). Raises IndexError when a row would outgrow the
        cache."""
        last = max(self._lengths) + (behind + nodes if room is None else room)
        if last > self.slots:
            raise IndexError(f"cache of {self.slots} slots is too small for {last} tokens")
        self.visible = last if last == nodes else min(-(-last // BUCKET) * BUCKET, self.slots)
        places = self.starts[:, None] + self.slot_ids[behind:behind + nodes]
        self._index = (places + self._first[:, None]).flatten()
        return places

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values [B, N, 2 * G, d] of one layer; returns all of the layer's that are visible, two
        views [B, G, L, d]."""
        store = self.store[layer]
        store.view(-1, *keys_values.shape[2:]).index_copy_(0, self._index, keys_values.flatten(0, 1))
        keys, values = store[:, :self.visible].permute(2, 0, 3, 1, 4).unbind()
        return keys, values

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any,
               **kwargs: Any) -> tuple[Tensor, Tensor]:
        """As `write`, for keys and values [B, G, N, d] apart."""
        return self.write(layer_idx, torch.cat([key_states, value_states], 1).transpose(1, 2))

    def compact(self, path: Tensor) -> None:
        """Move nodes of the last forward behind the committed tokens: node path[b, i] to place i. `path` [B, D] int64
        ascends in each row; path[b, i] = i leaves a node where it stands."""
        first = (self.starts + self._first)[:, None]
        flat = self.store.flatten(1, 2)
        moved = flat.index_select(1, (first + path).flatten())
        flat.index_copy_(1, (first + self.slot_ids[:path.shape[1]]).flatten(), moved)

    def commit(self, counts: Iterable[int]) -> None:
        """Add the first `counts[b]` nodes of the last forward to each row's committed tokens."""
        self.lengths = [length + count for length, count in zip(self._lengths, counts, strict=True)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self._lengths)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.visible, 0
