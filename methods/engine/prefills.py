"""Prompts that a model has read: the cells of a task ask for the same ones again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.engine.cache import SlotCache

MOST_BYTES = 512 * 2**20
"""Of one model's prompts; those that were asked for longest ago are forgotten first."""
Key = tuple[tuple[int, ...], tuple[int, ...]]
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
    """The prompts that one model has read, with what its forward gave for them."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._known: OrderedDict[Key, Read] = OrderedDict()

    def recall(self, rows: Sequence[Sequence[int]], features: tuple[int, ...], cache: SlotCache,
               ) -> tuple[Tensor, Tensor | None] | None:
        """Fill the empty `cache` with the prompts `rows` and commit them: logits [B, 1, V] and features [B, n, F*H],
        padded with 0. None, and nothing done, where one of them is not known."""
        keys = [_key(row, features) for row in rows]
        if not all(key in self._known for key in keys):
            return None
        found = [self._known[key] for key in keys]
        for place, (key, read) in enumerate(zip(keys, found, strict=True)):
            self._known.move_to_end(key)
            cache.store[:, place, :len(rows[place])] = read.keys_values
        cache.lengths = [len(row) for row in rows]
        states = [read.features for read in found if read.features is not None]
        padded = torch.nn.utils.rnn.pad_sequence(states, batch_first=True) if states else None
        return torch.stack([read.logits for read in found])[:, None], padded

    def add(self, rows: Sequence[Sequence[int]], features: tuple[int, ...], cache: SlotCache, logits: Tensor,
            states: Tensor | None) -> None:
        """Keep the prompts `rows`, of which `cache` holds nothing else yet: with their logits [B, 1, V] and features
        [B, n, F*H]."""
        for place, row in enumerate(rows):
            read = Read(cache.store[:, place, :len(row)], logits[place, 0],
                        None if states is None else states[place, :len(row)])
            if read.nbytes > self._most:
                continue
            self._drop(_key(row, features))
            while self._bytes + read.nbytes > self._most:
                self._drop(next(iter(self._known)))
            self._known[_key(row, features)] = read.copy()
            self._bytes += read.nbytes

    def _drop(self, key: Key) -> None:
        if (read := self._known.pop(key, None)) is not None:
            self._bytes -= read.nbytes


def _key(row: Sequence[int], features: tuple[int, ...]) -> Key:
    return tuple(row), features
