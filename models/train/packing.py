"""Conversations, from a JSONL file or a hub data set, and how they are packed into fixed-shape
training batches; a batch depends on its step alone, so runs can resume."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class ConversationSource:
    """Conversations to learn from. Both streams depend on their arguments alone.

    train     those to train on.
    held_out  those to measure on.
    """

    train: Stream
    held_out: Stream


@dataclass(slots=True)
class PackedBatch:
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

    def to(self, device: str) -> PackedBatch:
        """The same batch on another device."""
        return PackedBatch(
            self.input_ids.to(device),
            self.positions.to(device),
            self.document.to(device),
            self.weight.to(device),
        )

    def attention_mask(self) -> Tensor:
        """[R, 1, T, T] bool: causal, within the same conversation."""
        same = self.document[:, None, :, None] == self.document[:, None, None, :]
        return same & torch.ones(same.shape[-2:], dtype=torch.bool, device=same.device).tril()


class Packer:
    """Packs conversations first-fit into rows of `length` tokens, as the tokenizer's chat template
    writes them. Longer ones are truncated. Raises DataError for a tokenizer without a template.

    prompt_weight  loss weight of all but the assistant's answers, which weigh 1 up to their end
                   token."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stream: Stream,
        *,
        length: int,
        eos_ids: frozenset[int],
        prompt_weight: float = 0.0,
    ) -> None:
        if not tokenizer.chat_template:
            raise DataError(
                "the target's tokenizer has no chat template; take a target whose tokenizer has one"
            )
        self.tokenizer, self.stream, self.length, self.eos_ids = tokenizer, stream, length, eos_ids
        self.prompt_weight = prompt_weight

    def encode(self, conversation: Conversation) -> tuple[list[int], list[float]]:
        """Token ids and loss weights. An answer is what the template adds after the generation
        prompt; where a template rewrites earlier turns, only the last answer weighs."""
        messages = [{"role": role, "content": content} for role, content in conversation]
        ids = self._template(messages)
        weights = [self.prompt_weight] * len(ids)
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            start = len(self._template(messages[:number], add_generation_prompt=True))
            through = self._template(messages[: number + 1])
            if ids[: len(through)] != through or start >= len(through):
                continue
            end = next(
                (i for i in range(start, len(through)) if through[i] in self.eos_ids),
                len(through) - 1,
            )
            weights[start : end + 1] = [1.0] * (end + 1 - start)
        return ids[: self.length], weights[: self.length]

    def _template(self, messages: list[dict[str, str]], **options: Any) -> list[int]:
        tokenizer: Any = self.tokenizer
        ids: list[int] = tokenizer.apply_chat_template(messages, return_dict=False, **options)
        return ids

    def batch(self, step: int, rows: int, exercises: float = 0.0) -> PackedBatch:
        """The batch of `rows` rows of one step, with a share of exercises: a pure function of the
        three."""
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
            ids[row, at] = tokens
            position[row, at] = range(size)
            document[row, at] = number
            weight[row, at] = weights
            used[row] += size
        return PackedBatch(
            torch.from_numpy(ids),
            torch.from_numpy(position),
            torch.from_numpy(document),
            torch.from_numpy(weight),
        )


ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
}
HELD_OUT = 50
"""Every fiftieth conversation is held out: accuracies are measured on these."""


class DataError(ValueError):
    """Unusable conversations. The message is one line: what was given, what is allowed, how to fix
    it."""


def messages_of(record: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """(role, content) of one record: `messages` of {role, content} (UltraChat, OpenAI) or
    `conversations` of {from, value} (ShareGPT). Raises DataError."""
    for field, role, content in (
        ("messages", "role", "content"),
        ("conversations", "from", "value"),
    ):
        if record.get(field):
            try:
                return [(ROLES[m[role]], m[content]) for m in record[field]]
            except KeyError as error:
                raise DataError(
                    f"{where}: a message of {field!r} lacks or has an unknown {error}; each "
                    f"needs {role!r} (one of {', '.join(ROLES)}) and {content!r}"
                ) from error
    raise DataError(
        f"{where}: no 'messages' (role, content) and no 'conversations' (from, value); "
        f"found {', '.join(map(repr, record)) or 'nothing'}"
    )


def load_records(data: str, split: str) -> Sequence[Mapping[str, Any]]:
    """The records of a local JSONL file, gzipped or not, or of `split` of a data set on the hub.
    Raises DataError."""
    import datasets  # slow to import; the embedded pair does not need it

    try:
        if data.removesuffix(".gz").endswith((".jsonl", ".json")):
            records: Sequence[Mapping[str, Any]] = datasets.load_dataset(
                "json", data_files=data, split="train"
            )
        else:
            records = datasets.load_dataset(data, split=split)
        return records
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"data={data}: neither a readable JSONL file nor a data set on the hub: "
            f"{str(error).splitlines()[0]}; check the name and the network, or give a JSONL "
            "file"
        ) from error


class Records:
    """Endless conversations from `records`; every `HELD_OUT`th is held out. A pure function of its
    arguments."""

    def __init__(self, records: Sequence[Mapping[str, Any]], name: str, seed: int) -> None:
        if len(records) < HELD_OUT:
            raise DataError(
                f"data={name}: {len(records)} conversations; at least {HELD_OUT} are needed"
            )
        self.records, self.name, self.seed = records, name, seed

    def train(self, step: int, exercises: float = 0.0) -> Iterator[Conversation]:
        """The conversations of one training step, drawn with replacement."""
        rng = random.Random(f"{self.seed}/{step}")
        while True:
            number = rng.randrange(len(self.records))
            if number % HELD_OUT:
                yield self._get(number)

    def held_out(self, step: int, exercises: float = 0.0) -> Iterator[Conversation]:
        """Held-out conversations."""
        rng = random.Random(f"{self.seed}/held out/{step}")
        while True:
            yield self._get(HELD_OUT * rng.randrange(len(self.records) // HELD_OUT))

    def _get(self, number: int) -> Conversation:
        return messages_of(self.records[number], f"data={self.name}, record {number + 1}")
