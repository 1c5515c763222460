"""The vocabularies of models, and whether a draft model means the same tokens by the same ids as its target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from methods.engine import gguf
from methods.engine.source import ModelError, Source, read_json


def declared_size(source: str) -> int | None:
    """The vocabulary size that a checkpoint on this machine declares, without loading it; None for one that has to be
    fetched. Raises ModelError for a GGUF file or a config.json that cannot be used."""
    path = Source.of(source).folder / "config.json"
    if not path.exists():
        return gguf.read_header(Path(source)).vocab_size if Source.of(source).kind == "gguf" else None
    config = read_json(path)
    of_text = config.get("text_config")
    size = config.get("vocab_size") or (of_text.get("vocab_size") if isinstance(of_text, dict) else None)
    if size is not None and not (isinstance(size, int) and size > 0):
        raise ModelError(f"{path}: vocab_size={size!r}: must be a positive integer")
    return size


def check_same_vocabulary(target: Any, draft: Any) -> None:
    """Raises ModelError where the tokenizers of two language models name another token by the same id. Special tokens
    may differ, as they do within a family, and so may ids that only one of them names. A model without a tokenizer is
    not compared."""
    ours, theirs = _tokens(target.tokenizer), _tokens(draft.tokenizer)
    both = ours.keys() & theirs.keys()
    if other := sorted(token for token in both if ours[token] != theirs[token]):
        first = other[0]
        raise ModelError(f"{draft.source}: its vocabulary is not that of {target.source}: {len(other)} of {len(both)} "
                         f"ids name other tokens, the first of them {first}: {theirs[first]!r} in place of "
                         f"{ours[first]!r}; give a draft with the target's tokenizer")


def shared_rows(target: Any, draft: Any) -> int | None:
    """The size of the vocabulary that two language models of different sizes share, where one's embedding has padding
    rows alone beyond it; None where they have the same size, or differ in more."""
    sizes = target.vocab_size, draft.vocab_size
    tokenizers = [model.tokenizer for model in (target, draft) if hasattr(model.tokenizer, "get_vocab")]
    if sizes[0] == sizes[1] or len(tokenizers) < 2:
        return None
    largest = max(max(tokenizer.get_vocab().values()) for tokenizer in tokenizers)
    return min(sizes) if largest < min(sizes) else None


def may_share_rows(sources: Sequence[str], rows: int) -> bool:
    """Whether each of these checkpoints lies on this machine with a tokenizer without a token beyond `rows`."""
    files = [Source.of(source).folder / "tokenizer.json" for source in sources]
    return all(file.is_file() and _largest_id(file, file.stat().st_mtime_ns) < rows for file in files)


@cache
def _largest_id(file: Path, changed: int) -> int:
    return max(Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True).values())


def _tokens(tokenizer: Any) -> dict[int, str]:
    """Id -> token of the ordinary tokens; empty without a tokenizer."""
    if not hasattr(tokenizer, "get_vocab"):
        return {}
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    return {token: text for text, token in tokenizer.get_vocab().items() if token not in special}
