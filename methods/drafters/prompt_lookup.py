"""Prompt lookup decoding: draft the tokens that followed an earlier occurrence of the last n-gram.

Source: Saxena, "Prompt Lookup Decoding" (2023). Longest n-gram first, leftmost match, up to K tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pydantic import PositiveInt
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.engine.device import upload
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel


class PromptLookup(Drafter):
    """Copies deterministic candidates from the row's committed tokens; no distribution.

    max_ngram  length of the longest suffix to look up.
    """

    max_ngram: PositiveInt = 3

    @property
    def chain(self) -> bool:
        return True

    def start(self, target: LanguageModel, model: None, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _Lookup(self.max_ngram, settings.length, target.device)


def lookup(tokens: list[int], max_ngram: int, length: int) -> list[int]:
    """Up to `length` tokens that followed the leftmost earlier occurrence of the longest matching suffix.

    At least one token must follow a match; the suffix itself does not count."""
    for size in range(min(max_ngram, len(tokens) - 1), 0, -1):
        suffix = tokens[-size:]
        last = suffix[-1]
        end = size - 1
        while True:
            try:
                end = tokens.index(last, end, len(tokens) - 1)
            except ValueError:
                break
            if tokens[end - size + 1:end + 1] == suffix:
                return tokens[end + 1:end + 1 + length]
            end += 1
    return []


class _Lookup(Proposer):
    def __init__(self, max_ngram: int, length: int, device: torch.device):
        self.max_ngram, self.length, self.device = max_ngram, length, device

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        return padded_chain(rows, [lookup(row, self.max_ngram, self.length) for row in rows], self.device)


def padded_chain(rows: list[list[int]], drafts: list[list[int]], device: torch.device) -> Draft:
    """Chains of different lengths, each behind the last token of its row."""
    width = max(map(len, drafts))
    padded = [row[-1:] + draft + [0] * (width - len(draft)) for row, draft in zip(rows, drafts, strict=True)]
    tokens = upload(padded, device)
    if len(rows) == 1:
        return Draft.of_chain(tokens)
    sizes = upload([len(draft) for draft in drafts], device)
    return Draft.of_chain(tokens, valid=torch.arange(width + 1, device=device) <= sizes[:, None])
