"""Texts and tokens: the date in chat templates, control tokens in a user's text, the texts of
single tokens, and vocabularies that a pair shares."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from methods.engine import gguf
from methods.engine.source import ModelError, ModelSource, read_json

log = logging.getLogger(__name__)
DEFAULT_DATE = date(2024, 7, 26)
"""What Llama's templates print without a clock."""
CALL = re.compile(r"""strftime_now\s*\(\s*(?:format\s*=\s*)?(["'])(.*?)\1\s*\)""", re.DOTALL)


def fixed_date(source: str, template: Any, day: date | None) -> dict[str, Any]:
    """What `apply_chat_template` is given so that `source`'s chat template prints `day`, at
    midnight; nothing for one that prints no date. Says once which day it prints where none is
    given. Raises ModelError for a `day` that the template does not print, and for a template that
    reads the clock in another way."""
    text = template if isinstance(template, str) else ""
    reads_clock, takes_date = CALL.search(text) is not None, "date_string" in text
    without = CALL.sub("", text)
    if re.search(r"strftime_now\s*\(", without):
        raise ModelError(
            f"{source}: its chat template calls strftime_now with something other than a text, "
            "so its date cannot be fixed; give pair.chat_template=FILE with a date of its own"
        )
    if day is not None and not (reads_clock or takes_date):
        raise ModelError(
            f"{source}: task.date={day}: its chat template prints no date; leave task.date out"
        )
    if not reads_clock:
        return {} if day is None else {"date_string": day.strftime("%d %b %Y")}
    if day is None:
        _say(source)
    at = datetime.combine(day or DEFAULT_DATE, datetime.min.time())
    return {"chat_template": CALL.sub(lambda call: json.dumps(at.strftime(call[2])), text)}


@cache
def _say(source: str) -> None:
    log.warning(
        "%s: its chat template prints the date, and is given %s; task.date=YYYY-MM-DD gives it "
        "another",
        source,
        DEFAULT_DATE,
    )


class ControlTokens:
    """The special tokens of a tokenizer of transformers, in texts."""

    def __init__(self, tokenizer: Any) -> None:
        # mistral-common's never reads them out of a text
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special = {token.content for token in added.values() if token.special} - {""}
        # the longest that begins somewhere
        names = sorted(special, key=lambda name: (-len(name), name))
        self._pattern = re.compile("|".join(map(re.escape, names)) or r"(?!)")

    def first(self, text: str) -> str | None:
        """The first control token whose string is in the text."""
        match = self._pattern.search(text)
        return None if match is None else match[0]

    def broken(self, text: str) -> str:
        """The text with a zero-width space behind the first character of each control token, so
        that it is none."""
        return self._pattern.sub(lambda match: f"{match[0][0]}\u200b{match[0][1:]}", text)


_WORD = "(?:think|thinking|thoughts?|reasoning)"
THINK_END = re.compile(
    rf"</(?:\w+:)?{_WORD}>|\[/{_WORD}\]|◁/{_WORD}▷|<\|/{_WORD}\|>|<channel\|>|<\|inner_suffix\|>"
    rf"|<\|end_(?:of_)?{_WORD}\|>|<\|{_WORD}_end\|>",
    re.IGNORECASE,
)
"""What ends the reasoning of models: of Qwen 3, DeepSeek and others, Magistral, Kimi-VL, Gemma 4,
Apertus, Cohere. gpt-oss has channels in its place."""
FINAL = "<|channel|>final<|message|>"


def think_end(tokenizer: Any) -> tuple[str, ...]:
    """The marks that end a reasoning, of those that the tokenizer or its template names."""
    tokens = {token.content for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    template = getattr(tokenizer, "chat_template", None) or ""
    named = {mark for mark in tokens if THINK_END.fullmatch(mark)}
    named |= set(THINK_END.findall(str(template)))
    channels = [FINAL] if {"<|channel|>", "<|message|>"} <= tokens else []
    return (*channels, *sorted(named))


UNKNOWN = "\N{REPLACEMENT CHARACTER}"
COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "medusa_num_heads", "medusa_num_layers")
MOST_LAYERS = 1000
FILE = "tokenizer.json"


class TokenTexts:
    """Splits answers into the texts of their tokens, special tokens included."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._alone: dict[int, str] = {}

    def of(self, ids: Sequence[int]) -> list[str]:
        """One text per token; joined they are the text of all. A token that ends in the middle of a
        character is empty: its character belongs to the token that completes it. Of bytes that are
        no text, each token's text out of context."""
        alone = [self.alone(token) for token in ids]
        whole = self._decoded(ids)
        if UNKNOWN not in whole and "".join(alone) == whole:
            return alone
        texts: list[str] = []
        start = read = 0  # what was read last is the context of what comes
        for end in range(1, len(ids) + 1):
            before, text = self._decoded(ids[start:read]), self._decoded(ids[start:end])
            complete = len(text) > len(before) and not text.endswith(UNKNOWN)
            texts.append(text[len(before) :] if complete else "")
            if complete:
                start, read = read, end
        return texts if whole.startswith("".join(texts)) else alone

    def _decoded(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def alone(self, token: int) -> str:
        """The text of a token out of context."""
        if token not in self._alone:
            self._alone[token] = self._decoded([token])
        return self._alone[token]


def token_texts(
    source: str, revision: str | None = None, borrowed: Path | None = None
) -> TokenTexts:
    """The texts of a checkpoint's tokens: of a folder, a GGUF file that was converted, or a hub
    name whose tokenizer is in the cache; `borrowed` is the folder of the tokenizer for a source
    without one. Nothing is fetched. Raises ModelError, one line, where there is no
    tokenizer.json."""
    file = ModelSource.of(source).folder / FILE
    if not file.is_file() and borrowed is not None:
        file = borrowed / FILE
    if not file.is_file() and not ModelSource.of(source).is_gguf:
        cached = (
            try_to_load_from_cache(source, FILE, revision=revision)
            if source.count("/") == 1
            else None
        )
        file = Path(cached) if isinstance(cached, str) else file
    if not file.is_file():
        raise ModelError(
            f"{source}: no {FILE} on this machine: load the model once, or give a folder that "
            "holds one"
        )
    try:
        return TokenTexts(Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(
            f"{file}: is no tokenizer: {' '.join(str(error).split())}; download it again"
        ) from error


def has_chat_template(source: str, revision: str | None = None) -> bool:
    """Whether a checkpoint on this machine, or in the hub's cache, has a chat template."""

    def place_of(name: str) -> Path:
        cached = (
            try_to_load_from_cache(source, name, revision=revision)
            if source.count("/") == 1
            else None
        )
        return Path(cached) if isinstance(cached, str) else ModelSource.of(source).folder / name

    config = place_of("tokenizer_config.json")
    return place_of("chat_template.jinja").is_file() or (
        config.is_file() and bool(read_json(config).get("chat_template"))
    )


def declared_size(source: str) -> int | None:
    """The vocabulary size that a checkpoint on this machine declares, without loading it; None for
    one that has to be fetched. Raises ModelError for a GGUF file or a config.json that cannot be
    used, also for one with a number of layers that no model has."""
    path = ModelSource.of(source).folder / "config.json"
    if not path.exists():
        return (
            gguf.read_header(Path(source)).vocab_size
            if ModelSource.of(source).kind == "gguf"
            else None
        )
    config = read_json(path)
    of_text = config.get("text_config")
    of_text = of_text if isinstance(of_text, dict) else {}
    for key in COUNTS:
        count = config.get(key, of_text.get(key))
        if count is not None and not (type(count) is int and 1 <= count <= MOST_LAYERS):
            raise ModelError(f"{path}: {key}={count!r}: must be an integer from 1 to {MOST_LAYERS}")
    size = config.get("vocab_size") or of_text.get("vocab_size")
    if size is not None and not (isinstance(size, int) and size > 0):
        raise ModelError(f"{path}: vocab_size={size!r}: must be a positive integer")
    return size


def check_same_vocabulary(target: Any, draft: Any) -> None:
    """Raises ModelError where the tokenizers of two language models name another token by the same
    id. Special tokens may differ, as they do within a family, and so may ids that only one of them
    names. A model without a tokenizer is not compared."""
    ours, theirs = _tokens(target.tokenizer), _tokens(draft.tokenizer)
    both = ours.keys() & theirs.keys()
    if other := sorted(token for token in both if ours[token] != theirs[token]):
        first = other[0]
        raise ModelError(
            f"{draft.source}: its vocabulary is not that of {target.source}: {len(other)} of "
            f"{len(both)} ids name other tokens, the first of them {first}: {theirs[first]!r} in "
            f"place of {ours[first]!r}; give a draft with the target's tokenizer"
        )


def shared_rows(target: Any, draft: Any) -> int | None:
    """The size of the vocabulary that two language models of different sizes share, where one's
    embedding has padding rows alone beyond it; None where they have the same size, or differ in
    more."""
    sizes = target.vocab_size, draft.vocab_size
    tokenizers = [
        model.tokenizer for model in (target, draft) if hasattr(model.tokenizer, "get_vocab")
    ]
    if sizes[0] == sizes[1] or len(tokenizers) < 2:
        return None
    largest = max(max(tokenizer.get_vocab().values()) for tokenizer in tokenizers)
    return min(sizes) if largest < min(sizes) else None


def may_share_rows(sources: Sequence[str], rows: int) -> bool:
    """Whether each of these checkpoints lies on this machine with a tokenizer without a token
    beyond `rows`."""
    files = [ModelSource.of(source).folder / "tokenizer.json" for source in sources]
    return all(
        file.is_file() and _largest_id(file, file.stat().st_mtime_ns) < rows for file in files
    )


@cache
def _largest_id(file: Path, changed: int) -> int:
    return max(Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True).values())


def _tokens(tokenizer: Any) -> dict[int, str]:
    """Id -> token of the ordinary tokens; empty without a tokenizer."""
    if not hasattr(tokenizer, "get_vocab"):
        return {}
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    return {token: text for text, token in tokenizer.get_vocab().items() if token not in special}
