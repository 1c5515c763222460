"""A key-value cache of fixed size whose rows have different lengths, all on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import finalize

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Cache, PretrainedConfig

from methods.engine.device import upload
from methods.engine.graphs import Graphs
from methods.engine.tensor import dropped, numbers

Result = TypeVar("Result")
BUCKET = 64
"""A forward attends over a multiple of this many slots, so that few shapes occur."""


Entry = tuple[int, int, int]
"""Of one layer: key-value heads G, and how many numbers a key and a value have."""


@dataclass(slots=True, eq=False)
class CacheMemory:
    """The tensors of a cache.

    store     [layers, rows, slots, 2, G, d]: a token's keys and values are contiguous, so that one
              copy writes both.
    slot_ids  [slots] int64, 0, 1, …
    starts    [B] int64, committed tokens of each row.
    first     [B] int64, the first slot of each row, counted over all rows' slots.
    """

    store: Tensor
    slot_ids: Tensor
    starts: Tensor
    first: Tensor

    @classmethod
    def new(
        cls,
        layers: int,
        rows: int,
        slots: int,
        entry: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> CacheMemory:
        """For `rows` of `slots` tokens, whose keys and values have the shape `entry`, (2, G, d), in
        each layer."""
        return cls(
            torch.zeros(layers, rows, slots, *entry, dtype=dtype, device=device),
            torch.arange(slots, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
            torch.arange(rows, device=device) * slots,
        )

    @classmethod
    def lent(
        cls, free: list[CacheMemory], slots: int, new: Callable[[int], CacheMemory]
    ) -> CacheMemory:
        """Memory of at least `slots` slots: out of `free` where that holds some which is otherwise
        like what `new` makes for a number of slots."""
        slots = 1 << (slots - 1).bit_length()
        kind = new(0)
        fitting = next((memory for memory in free if memory.fits(kind, slots)), None)
        if fitting is None:
            return new(slots)
        free.remove(fitting)
        fitting.starts.zero_()
        return fitting

    def fits(self, kind: CacheMemory, slots: int) -> bool:
        """Whether it has at least `slots` slots and is otherwise like `kind`."""
        mine, other = self.store, kind.store
        return (
            mine.shape[2] >= slots
            and mine.shape[:2] == other.shape[:2]
            and mine.shape[3:] == other.shape[3:]
            and (mine.dtype, mine.device) == (other.dtype, other.device)
        )


class SlotCache(Cache):
    """Keys and values of `rows` sequences in `slots` preallocated places each.

    A forward of N nodes writes row b's slots lengths[b] … lengths[b]+N-1; nothing is committed
    until `commit`. Slots behind a row's committed length hold leftovers that the attention mask
    hides, so a rollback costs nothing.

    lengths  committed tokens of each row, as host integers; `set_lengths` sets `starts` too.
    graphs   what records forwards on this cache, and lends it its memory; None: nothing does.
    store, slot_ids, starts  of its `CacheMemory`: masks, positions and writes follow from them.
    """

    def __init__(
        self,
        config: PretrainedConfig,
        rows: int,
        slots: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        graphs: Graphs | None = None,
        layers: int | None = None,
        entries: Sequence[Entry] = (),
    ):
        """`layers`: how many it holds; by default all. `entries`: what each layer writes, by
        default what the config says."""
        super().__init__(layers=[])
        if entries:
            layers = len(entries)
            heads = max(entry[0] for entry in entries)
            dim = max(max(entry[1:]) for entry in entries)
        else:
            config = config.get_text_config(decoder=True)
            heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
            dim = (
                getattr(config, "head_dim", None)
                or config.hidden_size // config.num_attention_heads
            )
            layers = config.num_hidden_layers if layers is None else layers
        padded = any(entry != (heads, dim, dim) for entry in entries)
        self._entries = list(entries) if padded else []

        def memory(slots: int) -> CacheMemory:
            return CacheMemory.new(layers, rows, slots, (2, heads, dim), dtype, device)

        self.graphs = graphs
        self.memory = (
            memory(slots) if graphs is None else CacheMemory.lent(graphs.free, slots, memory)
        )
        if graphs is not None:
            finalize(self, graphs.free.append, self.memory)
        self.store = self.memory.store
        self.slot_ids = self.memory.slot_ids
        self.starts = self.memory.starts
        self.slots, self.visible = self.store.shape[2], 0
        self._first = self.memory.first
        self._index = self.starts
        self._lengths = [0] * rows
        self._viewed, self._shown = self.slot_ids, 0  # of no store yet

    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """work(*arguments), this cache among them, as a replayed graph where the cache has
        graphs."""
        return work(*arguments) if self.graphs is None else self.graphs.run(work, *arguments)

    @property
    def recorded_as(self) -> tuple[CacheMemory, int]:
        """What a recording depends on."""
        return self.memory, self.visible

    @property
    def lengths(self) -> list[int]:
        return self._lengths

    def set_lengths(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self.starts.copy_(upload(lengths, self.device), non_blocking=True)

    def unread(self, rows: list[list[int]]) -> Tensor:
        """[B, m] the tokens of each row behind those that the cache holds, as the next forward
        takes them. All rows have the same number: a row with fewer new tokens rewrites some cached
        ones in place."""
        cached = [min(len(row) - 1, n) for row, n in zip(rows, self.lengths, strict=True)]
        missing = max(len(row) - n for row, n in zip(rows, cached, strict=True))
        self.set_lengths([len(row) - missing for row in rows])
        return upload([row[-missing:] for row in rows], self.device)

    def advance(self, nodes: int) -> None:
        """Commit the last forward's first `nodes` nodes of every row."""
        self._lengths = [length + nodes for length in self._lengths]
        self.starts += nodes

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return self.store.nbytes

    @property
    def device(self) -> torch.device:
        return self.store.device

    @property
    def dtype(self) -> torch.dtype:
        return self.store.dtype

    def reserve(self, nodes: int) -> None:
        """Make room for `nodes` per row after the committed tokens: the host's part of a forward,
        or of several.

        They attend over `visible` slots: those of the nodes alone in an empty cache, otherwise the
        bucket that holds the longest row and the nodes. Raises IndexError when a row would outgrow
        the cache."""
        last = max(self._lengths) + nodes
        if last > self.slots:
            raise IndexError(f"cache of {self.slots} slots is too small for {last} tokens")
        self.visible = last if last == nodes else min(-(-last // BUCKET) * BUCKET, self.slots)

    def places(self, nodes: int) -> Tensor:
        """[B, N] int64: the slots of `nodes` per row after the committed tokens."""
        return self.starts[:, None] + self.slot_ids[:nodes]

    def begin(self, places: Tensor) -> None:
        """Prepare to write at slots [B, N] of each row, after `reserve`."""
        self._index = self._flat(places)

    def _flat(self, places: Tensor) -> Tensor:
        """Slots [B, N] of each row, counted over all rows' slots: [B * N]."""
        return (places if len(places) == 1 else places + self._first[:, None]).flatten()

    def write(self, layer: int, keys_values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values [B, N, 2 * G, d] of one layer; returns all of the layer's that
        are visible, two views [B, G, L, d]."""
        new = keys_values.flatten(0, 1)
        if torch.is_grad_enabled():  # autograd takes no views that were made before
            store = self.store[layer]
            store.view(-1, *keys_values.shape[2:]).index_copy_(0, self._index, new)
            keys, values = store[:, : self.visible].permute(2, 0, 3, 1, 4).unbind()
            return keys, values
        if self._viewed is not self.store or self._shown != self.visible:
            self._view()
        self._flats[layer].index_copy_(0, self._index, new)
        return self._keys[layer], self._values[layer]

    def _view(self) -> None:
        """Make the views of all layers that `write` needs, for as many slots as are visible now."""
        self._viewed, self._shown = self.store, self.visible
        seen = self.store[:, :, : self.visible].permute(3, 0, 1, 4, 2, 5)
        keys, values = seen.unbind()
        self._keys, self._values = keys.unbind(), values.unbind()
        self._flats = self.store.flatten(1, 2).flatten(2, 3).unbind()

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """As `write`, for keys and values [B, G, N, d] apart, of the layer's own G and d."""
        if self._entries:
            heads, dim = self.store.shape[-2:]
            key_states, value_states = (
                F.pad(states, (0, dim - states.shape[3], 0, 0, 0, heads - states.shape[1]))
                for states in (key_states, value_states)
            )
        keys_values = torch.cat([key_states, value_states], 1).transpose(1, 2)
        keys, values = self.write(layer_idx, keys_values)
        if not self._entries:
            return keys, values
        heads, key, value = self._entries[layer_idx]
        return keys[:, :heads, :, :key], values[:, :heads, :, :value]

    def compact(self, path: Tensor) -> None:
        """Move nodes of the last forward behind the committed tokens: node path[b, i] to place i.
        `path` [B, D] int64 ascends in each row; path[b, i] = i leaves a node where it stands."""
        flat = self.store.flatten(1, 2)
        moved = flat.index_select(1, self._flat(self.starts[:, None] + path))
        flat.index_copy_(1, self._flat(self.places(path.shape[1])), moved)

    def keep(self, places: list[int]) -> None:
        """Only the rows at these places, in this order, stay. Not for a cache with graphs, which
        know its memory."""
        assert self.graphs is None, "the graphs of a cache read its memory where it is"
        index = upload(places, self.device)
        first = torch.arange(len(places), device=self.device) * self.slots
        self.memory = CacheMemory(
            self.store.index_select(1, index), self.slot_ids, self.starts[index], first
        )
        self.store, self.starts, self._first = self.memory.store, self.memory.starts, first
        self._index, self._lengths = self.starts, [self._lengths[place] for place in places]

    def commit(self, counts: Iterable[int]) -> None:
        """Add the first `counts[b]` nodes of the last forward to each row's committed tokens."""
        self.set_lengths(
            [length + count for length, count in zip(self._lengths, counts, strict=True)]
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(self._lengths)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self.visible, 0


class LedCache(SlotCache):
    """Rank 0's part of a cache that is divided among ranks (`methods/engine/tensor.py`).

    number  by which the other ranks know theirs.
    moves   since the last forward: committed tokens of the rows before each, its method and the
            argument.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.number = next(numbers)
        self.moves: list[tuple[list[int], str, Any]] = []
        finalize(self, dropped.append, self.number)

    def compact(self, path: Tensor) -> None:
        self.moves.append((self.lengths, "compact", path))
        super().compact(path)

    def keep(self, places: list[int]) -> None:
        self.moves.append((self.lengths, "keep", places))
        super().keep(places)
