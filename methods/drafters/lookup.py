"""Drafters without a model of their own: none at all, prompt lookup and suffix decoding, which copy
from text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, Field, FilePath, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer, TokenRows
from methods.engine.device import upload
from methods.rules._files import read_json
from methods.trees.draft import Draft

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

Tokens = npt.NDArray[np.int64]
GAP = -1
"""Stands behind each answer of a corpus."""


class NoneDrafter(Drafter):
    """No drafter: autoregressive decoding, the baseline, in the same loop and engine as every
    method. It proposes the root alone, so every cycle commits exactly one token, chosen by the
    target."""

    def is_chain(self) -> bool:
        return True

    def nodes(self, length: int) -> int:
        return 1

    def start(
        self,
        target: LanguageModel,
        model: None,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        return _Copies(lambda row: [], target.device)


class PromptLookup(Drafter):
    """Prompt lookup decoding: draft the tokens that followed an earlier occurrence of the last
    n-gram. Deterministic, no distribution. Longest n-gram first, leftmost match, up to K tokens.
    Source: Saxena, "Prompt Lookup Decoding" (2023).

    max_ngram  length of the longest suffix to look up.
    """

    max_ngram: PositiveInt = 3

    def is_chain(self) -> bool:
        return True

    def start(
        self,
        target: LanguageModel,
        model: None,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        return _Copies(lambda row: lookup(row, self.max_ngram, settings.length), target.device)


def lookup(tokens: list[int], max_ngram: int, length: int) -> list[int]:
    """Up to `length` tokens that followed the leftmost earlier occurrence of the longest matching
    suffix.

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
            if tokens[end - size + 1 : end + 1] == suffix:
                return tokens[end + 1 : end + 1 + length]
            end += 1
    return []


class _Copies(Proposer):
    """Drafts what `copy` gives behind each row."""

    def __init__(self, copy: Callable[[list[int]], list[int]], device: torch.device):
        self.copy, self.device = copy, device

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        return padded_chain(rows, [self.copy(row) for row in rows], self.device)


def padded_chain(rows: TokenRows, drafts: TokenRows, device: torch.device) -> Draft:
    """Chains of different lengths, each behind the last token of its row."""
    width = max(map(len, drafts))
    padded = [
        row[-1:] + draft + [0] * (width - len(draft))
        for row, draft in zip(rows, drafts, strict=True)
    ]
    tokens = upload(padded, device)
    if len(rows) == 1 or not width:
        return Draft.of_chain(tokens)
    sizes = upload([len(draft) for draft in drafts], device)
    return Draft.of_chain(tokens, valid=torch.arange(width + 1, device=device) <= sizes[:, None])


class Suffix(Drafter):
    """Suffix decoding: draft what followed the longest suffix of the text elsewhere, by how often
    it did.

    A suffix of m tokens (m <= max_depth) that stands elsewhere is continued token by token with the
    most frequent next one. A token's probability is the product of these frequencies along the
    draft; it is drafted while this is at least `min_probability`, and at most `factor` m tokens
    are. Of all m the draft with the largest sum of probabilities is taken, of equal ones that of
    the longest suffix; of equally frequent tokens the one with the smallest id.

    The places are those of the row itself (its prompt and its answer so far) and, with `corpus`,
    those of recorded answers; the better draft of the two is taken, the row's own if they are
    equal. The source remembers the answers of the requests served before instead, which makes a
    draft depend on order and workers.

    Source: Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), chains;
    snowflakedb/ArcticInference 0a11e6ad, suffix_tree.cc, with the defaults of vLLM
    (suffix_decoding_max_tree_depth 24, _max_spec_factor 1, _min_token_prob 0.1). As there, the end
    of the text counts as a place that nothing follows. Deterministic, no distribution.

    max_depth        tokens of a suffix and its continuation together.
    factor           drafted tokens for each token of the suffix.
    min_probability  estimated probability below which a draft ends.
    corpus           JSON file of answers to copy from too, {"answers": [{"answer": [token ids]}]}.
    """

    max_depth: PositiveInt = 24
    factor: PositiveFloat = 1.0
    min_probability: float = Field(0.1, ge=0.0, le=1.0)
    corpus: FilePath | None = None

    def is_chain(self) -> bool:
        return True

    def start(
        self,
        target: LanguageModel,
        model: None,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        """Raises ValueError, one line, for a corpus of another vocabulary."""
        corpus = np.empty(0, np.int64)
        if self.corpus is not None:
            corpus = _corpus(self.corpus, target.vocab_size)

        def copy(row: list[int]) -> list[int]:
            tokens = np.array(row)
            draft, score = speculate(tokens, tokens, self, settings.length)
            if len(corpus):
                other, better = speculate(corpus, tokens, self, settings.length)
                draft = other if better > score else draft
            return draft

        return _Copies(copy, target.device)


class _Answer(BaseModel):
    answer: list[NonNegativeInt]


class _Answers(BaseModel):
    answers: list[_Answer]


def _corpus(file: Path, vocabulary: int) -> Tokens:
    """The token ids of all answers of the file, a gap behind each. Raises ValueError, one line."""
    answers = read_json(_Answers, file, "a corpus of answers").answers
    tokens = np.fromiter(chain.from_iterable([*a.answer, GAP] for a in answers), np.int64)
    if tokens.max(initial=GAP) >= vocabulary:
        raise ValueError(
            f"drafter.corpus={file}: token {tokens.max()}; the target's ids go from 0 to "
            f"{vocabulary - 1}: give answers in its own tokens"
        )
    return tokens


def speculate(text: Tokens, row: Tokens, options: Suffix, length: int) -> tuple[list[int], float]:
    """The best draft of at most `length` tokens that `text` gives behind `row`, and its sum of
    probabilities."""
    best: tuple[list[int], float] = [], 0.0
    ends = np.flatnonzero(text == row[-1]) + 1  # behind each place of the suffix
    size, deepest = 1, min(options.max_depth, len(row) - 1)
    while len(ends) and size <= deepest:
        longer = ends[ends > size]
        longer = longer[text[longer - size - 1] == row[-size - 1]] if size < deepest else longer[:0]
        most = min(length, int(size * options.factor + 1e-6), options.max_depth - size)
        candidate = _continue(text, ends, most, options.min_probability)
        best = candidate if candidate[1] >= best[1] else best
        ends, size = longer, size + 1
    return best


def _continue(text: Tokens, ends: Tokens, most: int, least: float) -> tuple[list[int], float]:
    """The most frequent continuation of the places, and the sum of its tokens' probabilities."""
    draft: list[int] = []
    probability, score = 1.0, 0.0
    while len(draft) < most:
        inside = ends[ends < len(text)]
        following = text[inside]
        if not (following != GAP).any():
            break
        token = int(np.bincount(following[following != GAP]).argmax())
        kept = inside[following == token]
        probability *= len(kept) / len(ends)
        if probability < least:
            break
        draft.append(token)
        score += probability
        ends = kept + 1
    return draft, score
