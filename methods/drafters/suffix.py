"""Suffix decoding: draft what followed the longest suffix of the text elsewhere, by how often it did.

A suffix of m tokens (m <= max_depth) that stands elsewhere is continued token by token with the most frequent next one.
A token's probability is the product of these frequencies along the draft; it is drafted while this is at least
`min_probability`, and at most `factor` m tokens are. Of all m the draft with the largest sum of probabilities is taken,
of equal ones that of the longest suffix; of equally frequent tokens the one with the smallest id.

The places are those of the row itself (its prompt and its answer so far) and, with `corpus`, those of the recorded
answers of `python -m bench.train mismatches`; the better draft of the two is taken, the row's own if they are equal.
The source remembers the answers of the requests served before instead, which makes a draft depend on order and workers.

Source: Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), chains; snowflakedb/ArcticInference 0a11e6ad,
suffix_tree.cc, with the defaults of vLLM (suffix_decoding_max_tree_depth 24, _max_spec_factor 1, _min_token_prob 0.1).
As there, the end of the text counts as a place that nothing follows."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.drafters.prompt_lookup import padded_chain
from methods.rules._files import Answers, made_by
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel

Tokens = npt.NDArray[np.int64]
GAP = -1
"""Stands behind each answer of a corpus."""


class Suffix(Drafter):
    """Deterministic candidates, no distribution.

    max_depth        tokens of a suffix and its continuation together.
    factor           drafted tokens for each token of the suffix.
    min_probability  estimated probability below which a draft ends.
    corpus           recorded answers to copy from; None: the row alone.
    """

    max_depth: PositiveInt = 24
    factor: PositiveFloat = 1.0
    min_probability: float = Field(0.1, ge=0.0, le=1.0)
    corpus: Annotated[Path, made_by("bench.train mismatches")] | None = None

    @property
    def chain(self) -> bool:
        return True

    def start(self, target: LanguageModel, model: None, settings: DraftSettings, rows: list[list[int]],
              slots: int) -> Proposer:
        """Raises ValueError, one line, for a corpus of another target."""
        corpus = np.empty(0, np.int64)
        if self.corpus is not None:
            answers = Answers.read(self.corpus, target, "drafter.corpus").answers
            corpus = np.fromiter(chain.from_iterable([*a.answer, GAP] for a in answers), np.int64)
        return _Copied(self, corpus, settings.length, target)


class _Copied(Proposer):
    def __init__(self, options: Suffix, corpus: Tokens, length: int, target: LanguageModel):
        self.options, self.corpus, self.length, self.device = options, corpus, length, target.device

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        return padded_chain(rows, [self._draft(np.array(row)) for row in rows], self.device)

    def _draft(self, row: Tokens) -> list[int]:
        own, score = speculate(row, row, self.options, self.length)
        if len(self.corpus):
            other, better = speculate(self.corpus, row, self.options, self.length)
            own = other if better > score else own
        return own


def speculate(text: Tokens, row: Tokens, options: Suffix, length: int) -> tuple[list[int], float]:
    """The best draft of at most `length` tokens that `text` gives behind `row`, and its sum of probabilities."""
    best: tuple[list[int], float] = [], 0.0
    ends = np.flatnonzero(text == row[-1]) + 1  # behind each place of the suffix
    size, deepest = 1, min(options.max_depth, len(row) - 1)
    while len(ends) and size <= deepest:
        longer = ends[ends > size]
        longer = longer[text[longer - size - 1] == row[-size - 1]] if size < deepest else longer[:0]
        most = min(length, int(size * options.factor + 1e-6), options.max_depth - size)
        found = _continue(text, ends, most, options.min_probability)
        best = found if found[1] >= best[1] else best
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
