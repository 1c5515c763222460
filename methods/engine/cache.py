"""A key-value cache of fixed size whose rows have different lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache, PretrainedConfig


class SlotCache(Cache):
    """Keys and values of `rows` sequences in `slots` preallocated places each.

    `lengths` are the committed tokens of each row (host integers). A forward of N nodes writes row b's slots
    lengths[b] … lengths[b]+N-1; nothing is committed until `commit`. Slots behind a row's committed length hold
    leftovers that the attention mask hides, so a rollback costs nothing.

    store  [layers, rows, slots, 2, G, d]: a token's keys and values are contiguous, so that one copy writes both.
    """

    def __init__(self, config: PretrainedConfig, rows: int, slots: int, *, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        config = config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.store = torch.zeros(config.num_hidden_layers, rows, slots, 2, heads, dim, dtype=dtype, device=device)
        self.lengths = [0] * rows
        self.slots = slots
        self._visible = 0
        self._index = torch.empty(0, dtype=torch.int64, device=device)

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

    @property
    def ragged(self) -> bool:
        """Whether the rows have different lengths."""
        return min(self.lengths) != max(self.lengths)

    def begin(self, nodes: int) -> int:
        """Prepare to write `nodes` per row; returns L, the number of slots the forward attends over.

        Raises IndexError when a row would outgrow the cache."""
        self._visible = max(self.lengths) + nodes
        if self._visible > self.slots:
            raise IndexError(f"cache of {self.slots} slots is too small for {self._visible} tokens")
        starts = [row * self.slots + length for row, length in enumerate(self.lengths)]
        index = torch.tensor(starts, device=self.device)[:, None] + torch.arange(nodes, device=self.device)
        self._index = index.flatten()
        return self._visible

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values [B, N, 2 * G, d] of one layer; returns all of the layer's, two views
        [B, G, L, d]."""
        store = self.store[layer]
        store.view(-1, *keys_values.shape[2:]).index_copy_(0, self._index, keys_values.flatten(0, 1))
        keys, values = store[:, :self._visible].permute(2, 0, 3, 1, 4).unbind()
        return keys, values

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any,
               **kwargs: Any) -> tuple[Tensor, Tensor]:
        """As `write`, for keys and values [B, G, N, d] apart."""
        return self.write(layer_idx, torch.cat([key_states, value_states], 1).transpose(1, 2))

    def commit(self, kept: list[list[int]]) -> None:
        """Keep the nodes `kept[b]` (ascending, of the last forward) of each row behind its committed tokens.

        A prefix of the nodes is in place already; anything else is moved together by index, on the device."""
        for row, nodes in enumerate(kept):
            start = self.lengths[row]
            if nodes and nodes[-1] != len(nodes) - 1:
                source = torch.tensor(nodes, device=self.device) + start
                self.store[:, row, start:start + len(nodes)] = self.store[:, row].index_select(1, source)
            self.lengths[row] = start + len(nodes)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self.lengths)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self._visible, 0
