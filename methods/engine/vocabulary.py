"""Whether a draft model means the same tokens by the same ids as its target."""

from __future__ import annotations

from typing import Any

from methods.engine.source import ModelError


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


def _tokens(tokenizer: Any) -> dict[int, str]:
    """Id -> token of the ordinary tokens; empty without a tokenizer."""
    if not hasattr(tokenizer, "get_vocab"):
        return {}
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    return {token: text for text, token in tokenizer.get_vocab().items() if token not in special}
