"""Prompts that a model has read: the cells of a task ask for the same ones again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

from methods.engine.cache import SlotCache

Features = tuple[int, ...]
Key = tuple[tuple[int, ...], Features]
"""Token ids of a prompt, and the features that were asked for with it."""


@dataclass(frozen=True, slots=True)
class Read:
    """One prompt of n tokens, read.

    keys_values  [layers, n, 2, G, d].
    logits       [V] behind its last token.
    features     [n, F*H], or None.
    """

    keys_values: Tensor
    logits: Tensor
    features: Tensor | None

    def copy(self) -> Read:
        """With memory of its own."""
        return Read(self.keys_values.clone(), self.logits.clone(),
                    None if self.features is None else self.features.clone())

    @property
    def nbytes(self) -> int:
        return self.keys_values.nbytes + self.logits.nbytes + (0 if self.features is None else self.features.nbytes)


class Prefills:
    """The prompts that one model has read, with what its forward gave for them. Those that were asked for longest ago
    are forgotten first: where they would take more than `most_bytes`, by default where they would leave less than half
    of the device's memory free."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most, self._bytes = most_bytes, 0
        self._known: OrderedDict[Key, Read] = OrderedDict()
        self._kinds: dict[Features, None] = {(): None}  # asked for with some prompt, in this order

    def recall(self, rows: Sequence[Sequence[int]], features: Features, cache: SlotCache,
               ) -> tuple[Tensor, Tensor | None] | None:
        """Fill the empty `cache` with the prompts `rows` and commit them: logits [B, 1, V] and features [B, n, F*H],
        padded with 0. None, and nothing done, where one of them is not known."""
        keys = [key for row in rows if (key := self._find(row, features)) is not None]
        if len(keys) < len(rows):
            return None
        found = [self._known[key] for key in keys]
        for place, (key, read) in enumerate(zip(keys, found, strict=True)):
            self._known.move_to_end(key)
            cache.store[:, place, :len(rows[place])] = read.keys_values
        cache.lengths = [len(row) for row in rows]
        states = [read.features for read in found if read.features is not None] if features else []
        padded = torch.nn.utils.rnn.pad_sequence(states, batch_first=True) if states else None
        return torch.stack([read.logits for read in found])[:, None], padded

    def add(self, rows: Sequence[Sequence[int]], features: Features, cache: SlotCache, logits: Tensor,
            states: Tensor | None) -> None:
        """Keep the prompts `rows`, of which `cache` holds nothing else yet: with their logits [B, 1, V] and features
        [B, n, F*H]."""
        self._kinds[features] = None
        for place, row in enumerate(rows):
            read = Read(cache.store[:, place, :len(row)], logits[place, 0],
                        None if states is None else states[place, :len(row)])
            if self._find(row, features) is not None or (self._most is not None and read.nbytes > self._most):
                continue
            self._drop((tuple(row), ()))  # who asks for no features takes this one
            while self._known and self._room(read.keys_values.device) < read.nbytes:
                self._drop(next(iter(self._known)))
            if self._room(read.keys_values.device) >= read.nbytes:
                self._known[tuple(row), features] = read.copy()
                self._bytes += read.nbytes

    def _find(self, row: Sequence[int], features: Features) -> Key | None:
        """Where the prompt is known with these features; with any, where none are asked for."""
        keys = ((tuple(row), kind) for kind in ((features,) if features else self._kinds))
        return next((key for key in keys if key in self._known), None)

    def _room(self, device: torch.device) -> int:
        """How many bytes may be added."""
        if self._most is not None:
            return self._most - self._bytes
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        else:
            memory = psutil.virtual_memory()
            free, total = memory.available, memory.total
        return free - total // 2

    def _drop(self, key: Key) -> None:
        if (read := self._known.pop(key, None)) is not None:
            self._bytes -= read.nbytes
