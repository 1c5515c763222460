"""Pack conversations into fixed-shape training batches; a batch depends on its step alone, so runs can resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

Conversation = Sequence[tuple[str, str]]
"""(role, content) messages."""
Stream = Callable[[int, float], Iterator[Conversation]]
"""(step, share of exercises) -> endless conversations, a function of its arguments alone."""


@dataclass(slots=True)
class Batch:
    """A packed training batch.

    input_ids  [R, T] int64 tokens.
    positions  [R, T] int64 positions within the conversation.
    document   [R, T] int64, the number of the token's conversation (0: padding).
    weight     [R, T] float32, the loss weight of *predicting* the token at t (0 for padding).
    """

    input_ids: Tensor
    positions: Tensor
    document: Tensor
    weight: Tensor

    def to(self, device: str) -> Batch:
        """The same batch on another device."""
        return Batch(self.input_ids.to(device), self.positions.to(device), self.document.to(device),
                     self.weight.to(device))

    def attention_mask(self) -> Tensor:
        """[R, 1, T, T] bool: causal, within the same conversation."""
        same = self.document[:, None, :, None] == self.document[:, None, None, :]
        return same & torch.ones(same.shape[-2:], dtype=torch.bool, device=same.device).tril()


class Packer:
    """Packs conversations first-fit into rows of `length` tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stream: Stream, *, length: int,
                 prompt_weight: float) -> None:
        self.tokenizer, self.stream, self.length = tokenizer, stream, length
        self.prompt_weight = prompt_weight
        special = ("system", "user", "assistant", "end")
        self.ids: dict[str, Any] = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in special}

    def encode(self, conversation: Conversation) -> tuple[list[int], list[float]]:
        """Token ids and loss weights: 1 for answers and their end token, `prompt_weight` for the rest."""
        ids: list[int] = []
        weights: list[float] = []
        for role, content in conversation:
            text = self.tokenizer.encode(f" {content.strip()}", add_special_tokens=False)  # as the chat template does
            weight = 1.0 if role == "assistant" else self.prompt_weight
            ids += [self.ids[role], *text, self.ids["end"]]
            weights += [0.0] + [weight] * len(text) + [weight]
        return ids, weights

    def batch(self, step: int, rows: int, exercises: float = 0.0) -> Batch:
        """The batch of `rows` rows of one step, with a share of exercises: a pure function of the three."""
        shape = (rows, self.length)
        ids, position = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        document, weight = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        used, misses = [0] * rows, 0
        for number, conversation in enumerate(self.stream(step, exercises), start=1):
            tokens, weights = self.encode(conversation)
            size = len(tokens)
            row = next((r for r in range(rows) if used[r] + size <= self.length), None)
            if row is None:
                misses += 1
                if misses == 8:  # the remaining gaps are too small for most conversations
                    break
                continue
            at = slice(used[row], used[row] + size)
            ids[row, at], position[row, at], document[row, at], weight[row, at] = tokens, range(size), number, weights
            used[row] += size
        return Batch(torch.from_numpy(ids), torch.from_numpy(position), torch.from_numpy(document),
                     torch.from_numpy(weight))
