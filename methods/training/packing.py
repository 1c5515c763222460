"""Conversations -> fixed-shape training batches, reachable by step number so that a resumed run sees the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Conversation = Sequence[tuple[str, str]]
"""(role, content) messages."""


@dataclass(slots=True)
class Batch:
    """input_ids, positions [R, T] int64; document [R, T] int64, the number of the conversation a token belongs to
    (0 = padding); weight [R, T] float32, the loss weight of *predicting* the token at t (0 for padding)."""

    input_ids: Tensor
    positions: Tensor
    document: Tensor
    weight: Tensor

    def attention_mask(self) -> Tensor:
        """[R, 1, T, T] bool: causal, and only within the same conversation."""
        same = self.document[:, None, :, None] == self.document[:, None, None, :]
        return same & torch.ones(same.shape[-2:], dtype=torch.bool, device=same.device).tril()


class Packer:
    """Packs conversations first-fit into rows of `length` tokens."""

    def __init__(self, tokenizer, stream: Callable[[int, float], Iterable[Conversation]], *, length: int,
                 prompt_weight: float):
        self.tokenizer, self.stream, self.length = tokenizer, stream, length
        self.prompt_weight = prompt_weight
        marks = ("system", "user", "assistant", "end")
        self.ids = {mark: tokenizer.convert_tokens_to_ids(f"<|{mark}|>") for mark in marks}

    def encode(self, conversation: Conversation) -> tuple[list[int], list[float]]:
        """Token ids and loss weights: answers and the end token after them weigh 1, the rest `prompt_weight`."""
        ids: list[int] = []
        weights: list[float] = []
        for role, content in conversation:
            text = self.tokenizer.encode(f" {content.strip()}", add_special_tokens=False)  # as the chat template does
            weight = 1.0 if role == "assistant" else self.prompt_weight
            ids += [self.ids[role], *text, self.ids["end"]]
            weights += [0.0] + [weight] * len(text) + [weight]
        return ids, weights

    def batch(self, step: int, rows: int, exercises: float = 0.0) -> Batch:
        """The batch of step `step` of `rows` rows, with a share of exercises: a pure function of the three."""
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
                if misses == 8:  # what is left is too small for most conversations
                    break
                continue
            at = slice(used[row], used[row] + size)
            ids[row, at], position[row, at], document[row, at], weight[row, at] = tokens, range(size), number, weights
            used[row] += size
        return Batch(*(torch.from_numpy(a) for a in (ids, position, document, weight)))
