"""What texts and the decode loop need of a model. `LanguageModel` has all of it; drafters that run layers or heads of
the target need more of that class."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch
    from torch import Tensor

    from methods.engine.cache import SlotCache
    from methods.engine.language_model import Output
    from methods.engine.texts import ControlTokens


class Text(Protocol):
    """A model as far as texts are concerned. Its methods raise ModelError for what it cannot encode."""

    @property
    def source(self) -> str:
        """How messages name it."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """The tokens that end an answer."""

    @property
    def control_tokens(self) -> ControlTokens:
        """The strings that it reads as special tokens."""

    def encode(self, messages: list[dict[str, str]], plain: Collection[int] = (),
               day: date | None = None) -> list[int]:
        """Token ids of a conversation through the chat template, up to the beginning of the next answer; control tokens
        in the messages of the indices `plain` are text, and `day` is the one that the template prints."""

    def encode_text(self, text: str, plain: bool = False) -> list[int]:
        """Token ids of a text, as the tokenizer makes them; where `plain`, its control tokens are text."""

    def decode(self, ids: list[int], *, opens: bool = False) -> str:
        """Text of token ids behind others, or that open a text, special tokens left out."""


class Target(Text, Protocol):
    """The model whose tokens the loop of `methods.decode` emits. B rows, N tokens of each, a vocabulary of V."""

    @property
    def device(self) -> torch.device:
        """Where logits come to lie."""

    @property
    def max_positions(self) -> int:
        """The longest context, answer included."""

    def new_cache(self, rows: int, slots: int) -> SlotCache:
        """An empty cache for so many rows of at most so many tokens."""

    def prefill(self, rows: list[list[int]], cache: SlotCache, features: tuple[int, ...] = ()) -> Output:
        """Read the prompts into the cache; logits [B, 1, V] float32 behind each prompt's last token."""

    def forward(self, tokens: Tensor, cache: SlotCache, *, ancestors: Tensor | None = None, depth: Tensor | None = None,
                keep: Tensor | int = 0, hidden: bool = False, features: tuple[int, ...] = ()) -> Output:
        """Logits [B, N, V] float32 behind each of the tokens [B, N], a chain or the tree of `ancestors` and `depth`,
        which the cache then holds behind its committed ones."""
