"""Control tokens in a text: the strings that a tokenizer reads as special tokens, such as the end of a message."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer

from methods.engine.source import ModelError

BEGIN, END, TEXT_BEGIN, TEXT_END = "\U000F0000", "\U000F0001", "\U000F0002", "\U000F0003"
"""Private characters around the number of a control token, and around that of one which is to be read as text."""
_PRIVATE = re.compile(f"[{BEGIN}{END}{TEXT_BEGIN}{TEXT_END}]")
_TEXT = re.compile(f"{TEXT_BEGIN}([0-9]+){TEXT_END}")


class ControlTokens:
    """The special tokens of a tokenizer, and texts that hold their strings encoded as plain text.

    A copy of the tokenizer knows the special tokens by other names. What the chat template writes is renamed, what
    stands in a plain message is not, so that this copy reads it like any other text."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        """`tokenizer`: of transformers; `source`: how messages name its model."""
        self._tokenizer, self._source = tokenizer, source
        added = getattr(tokenizer, "added_tokens_decoder", {})  # mistral-common's never reads them out of a text
        special = {token.content for token in added.values() if token.special}
        self._names = sorted(special - {""}, key=lambda name: (-len(name), name))  # the longest that begins somewhere
        self._pattern = re.compile("|".join(map(re.escape, self._names)) or r"(?!)")
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def first(self, text: str) -> str | None:
        """The first control token whose string is in the text."""
        found = self._pattern.search(text)
        return None if found is None else found[0]

    def chat(self, messages: Sequence[Mapping[str, str]], plain: Collection[int],
             options: Mapping[str, Any] = MappingProxyType({})) -> list[int]:
        """Token ids of a conversation up to the next answer, where the messages of these indices hold plain text alone.
        `options`: further arguments of `apply_chat_template`. Raises ModelError."""
        for message in messages:
            self._check(message["content"])
        hidden = [{**message, "content": self._renamed(message["content"], TEXT_BEGIN, TEXT_END)}
                  if number in plain else message for number, message in enumerate(messages)]
        text = self._tokenizer.apply_chat_template(hidden, add_generation_prompt=True, tokenize=False,
                                                   **options)
        renamed = self._renamed(text, BEGIN, END)
        shown = _TEXT.sub(lambda match: self._names[int(match[1])], renamed)
        return list(self._copy.encode(shown, add_special_tokens=False).ids)

    def text(self, text: str) -> list[int]:
        """Token ids of a text, none of whose characters is read as a control token. Raises ModelError."""
        self._check(text)
        return list(self._copy.encode(text).ids)

    def _check(self, text: str) -> None:
        if _PRIVATE.search(text):
            raise ModelError("a text with the private characters U+F0000 to U+F0003 cannot be read as plain text; "
                             "remove them")

    def _renamed(self, text: str, begin: str, end: str) -> str:
        return self._pattern.sub(lambda match: f"{begin}{self._numbers[match[0]]}{end}", text)

    @cached_property
    def _copy(self) -> Tokenizer:
        """The tokenizer with other names for its special tokens. Raises ModelError."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ModelError(f"{self._source}: its tokenizer has no tokenizer.json, so it cannot read a control token "
                             "as plain text; take it out of the text")
        data = json.loads(backend.to_str())
        model, other = data["model"], {name: self._renamed(name, BEGIN, END) for name in self._names}
        vocabulary = model["vocab"]
        if isinstance(vocabulary, dict):
            model["vocab"] = {other.get(name, name): number for name, number in vocabulary.items()}
        else:
            model["vocab"] = [[other.get(name, name), score] for name, score in vocabulary]
        if "merges" in model:  # none may make a control token of text
            merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
            model["merges"] = [merge for merge in merges if not {*merge, "".join(merge)} & other.keys()]
        model |= {key: other[model[key]] for key in ("unk_token",) if model.get(key) in other}
        for token in data["added_tokens"]:
            token["content"] = other.get(token["content"], token["content"])
        return Tokenizer.from_str(json.dumps(data))
