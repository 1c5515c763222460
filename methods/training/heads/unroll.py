"""Training-time test (EAGLE-3, section 3.2): a head in training consumes its own output, as it does when drafting.

Step 0 runs over whole rows on the target's true features. Step k continues every chosen slot t by one token, at
position t + k, attending to the true features up to t and to the slot's own steps 1 … k, as a drafted chain does. It is
the drafter's own forward with such a mask and cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from methods.heads.layer import HeadModule
from methods.training.heads.slots import Slots, take
from methods.training.packing import Batch

Past = tuple[Tensor, ...]
"""Keys and values [B, G, N, d] in turn, oldest first."""


class _Appending:
    """A cache for one forward: what it stores is appended to `past`."""

    def __init__(self, past: Past) -> None:
        self.past = past

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int) -> tuple[Tensor, Tensor]:
        self.past = (*self.past, key_states, value_states)
        return torch.cat(self.past[::2], 2), torch.cat(self.past[1::2], 2)


def unroll(head: HeadModule, embed: Callable[[Tensor], Tensor], hidden: Tensor, batch: Batch, slots: Slots, steps: int,
           run: Callable[..., Any]) -> Iterator[Tensor]:
    """Yield the head's output [R, M, h] at the slots after draft step 0, 1, … steps-1.

    hidden [R, T, h]: fused features. embed: token ids -> embeddings. run(function, *args): calls the function (the hook
    for gradient checkpointing). Step k reads the true token t+1+k: its output is conditional on all earlier drafts
    being right, as is the acceptance of a draft."""

    def forward(embeddings: Tensor, hidden: Tensor, mask: Tensor, positions: Tensor,
                *past: Tensor) -> tuple[Tensor, ...]:
        cache = _Appending(past)
        out = head(embeddings, hidden, mask=mask, rotary=head.rotary(positions), cache=cache)
        return out, *cache.past

    mask = batch.attention_mask()
    out, *past = run(forward, embed(batch.input_ids.roll(-1, 1)), hidden, mask, batch.positions)
    out = take(out, slots.index)
    yield out
    index = slots.index
    mask = mask.gather(2, index[:, None, :, None].expand(-1, 1, -1, mask.shape[-1]))
    own = torch.eye(index.shape[1], dtype=torch.bool, device=index.device).expand(len(index), 1, -1, -1)
    positions = take(batch.positions, index)
    for k in range(1, steps):
        mask = torch.cat([mask, own], -1)
        out, *past = run(forward, embed(slots.after(batch.input_ids, 1 + k)), out, mask, positions + k, *past)
        yield out
