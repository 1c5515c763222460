"""The text of each token of an answer, without loading a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from methods.engine.source import ModelError, Source

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
FILE = "tokenizer.json"


class TokenTexts:
    """Splits answers into the texts of their tokens, special tokens included."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._alone: dict[int, str] = {}

    def of(self, ids: Sequence[int]) -> list[str]:
        """One text per token; joined they are the text of all. A token that ends in the middle of a character is empty:
        its character belongs to the token that completes it."""
        texts = [self.alone(token) for token in ids]
        if UNKNOWN not in "".join(texts) and "".join(texts) == self._tokenizer.decode(ids, skip_special_tokens=False):
            return texts
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._tokenizer, token) or "" for token in ids]

    def count(self, text: str) -> int:
        """Tokens of a text, including special tokens that the tokenizer adds."""
        return len(self._tokenizer.encode(text).ids)

    def alone(self, token: int) -> str:
        """The text of a token out of context."""
        if token not in self._alone:
            self._alone[token] = self._tokenizer.decode([token], skip_special_tokens=False)
        return self._alone[token]


def token_texts(source: str, revision: str | None = None, borrowed: Path | None = None) -> TokenTexts:
    """The texts of a checkpoint's tokens: of a folder, a GGUF file that was converted, or a hub name whose tokenizer is
    in the cache; `borrowed` is the folder of the tokenizer for a source without one. Nothing is fetched. Raises
    ModelError, one line, where there is no tokenizer.json."""
    file = Source.of(source).folder / FILE
    if not file.is_file() and borrowed is not None:
        file = borrowed / FILE
    if not file.is_file() and not Source.of(source).is_gguf:
        cached = try_to_load_from_cache(source, FILE, revision=revision) if source.count("/") == 1 else None
        file = Path(cached) if isinstance(cached, str) else file
    if not file.is_file():
        raise ModelError(f"{source}: no {FILE} on this machine: load the model once, or give a folder that holds one")
    try:
        return TokenTexts(Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"{file}: is no tokenizer: {' '.join(str(error).split())}; download it again") from error
