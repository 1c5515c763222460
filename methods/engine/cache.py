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
    """

    def __init__(self, config: PretrainedConfig, rows: int, slots: int, *, dtype: torch.dtype, device: torch.device):
        super().__init__(layers=[])
        config = config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, rows, heads, slots, dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.lengths = [0] * rows
        self.slots = slots
        self._visible = self._nodes = 0
        self._index: tuple[Tensor, Tensor] | None = None

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
        self._nodes = nodes
        self._index = None
        if self.ragged:
            start = torch.tensor(self.lengths, device=self.keys.device)
            slots = start[:, None] + torch.arange(nodes, device=self.keys.device)
            self._index = (torch.arange(len(self.lengths), device=self.keys.device)[:, None], slots)
        return self._visible

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any,
               **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write [B, G, N, d] keys and values of one layer; returns the layer's [B, G, L, d] views."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        if self._index is None:
            start = self.lengths[0]
            keys[:, :, start:start + self._nodes] = key_states
            values[:, :, start:start + self._nodes] = value_states
        else:
            row, slot = self._index
            keys[row, :, slot] = key_states.transpose(1, 2)
            values[row, :, slot] = value_states.transpose(1, 2)
        return keys[:, :, :self._visible], values[:, :, :self._visible]

    def commit(self, kept: list[list[int]]) -> None:
        """Keep the nodes `kept[b]` (ascending, of the last forward) of each row behind its committed tokens.

        A prefix of the nodes is in place already; anything else is moved together by index, on the device."""
        for row, nodes in enumerate(kept):
            start = self.lengths[row]
            if nodes and nodes[-1] != len(nodes) - 1:
                source = torch.tensor(nodes, device=self.keys.device) + start
                for store in (self.keys, self.values):
                    store[:, row, :, start:start + len(nodes)] = store[:, row].index_select(2, source)
            self.lengths[row] = start + len(nodes)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self.lengths)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self._visible, 0
