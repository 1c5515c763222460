"""Lookahead decoding: draft from a pool of n-grams that Jacobi iterations of the target fill.

With N = level, W = window, G = guesses, one forward of the target carries two branches besides the
root.

  lookahead branch  N-1 lines of W tokens. Line r, column c guesses the token r + c positions after
                    the root; line
      0, column 0 is the root. A token attends to the committed tokens, to line 0 up to its column,
      and to its column above it: line 0 is a chain, and each of its tokens starts a chain of N-2.
      These nodes are not candidates (`Draft.extra_nodes`).
  verification branch  up to G n-grams of the pool that begin with the root, N-1 tokens each, latest
                       first. Common
      prefixes are shared, so that the children of a node are distinct, as every rule requires.

The target's argmax after the last line forms a new line below it. Column c with its new end is an
n-gram (token of line 0 -> the N-1 below): W of them enter the pool, which keeps the latest G for
each first token. Then line 0 is dropped, so the window moves by one token, however many were
committed (the authors' ALWAYS_FWD_ONE). Initially there is only line 0, W+N-2 random tokens of the
prompt; each of the first N-2 cycles adds a line and loses a column. With `pool_from_prompt` the
n-grams of the committed text also enter the pool.

Deterministic candidates, no distribution; the window advances by argmax at every temperature. Pool
and window are kept per prompt. Source: Fu et al. 2024, "Break the Sequential Dependency of LLM
Inference Using Lookahead Decoding", Algorithm 2 and section 3; hao-ai-lab/LookaheadDecoding. The
papers' runs: level 5, window 15, guesses 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer, TokenRows
from methods.engine.device import upload
from methods.trees.draft import Draft

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


class Lookahead(Drafter):
    """Options of lookahead decoding.

    level             N, tokens of an n-gram; replaces draft.length.
    window            W, columns of the lookahead branch.
    guesses           G, n-grams verified per cycle and kept per first token.
    pool_from_prompt  also pool the n-grams of the committed text.
    """

    shaped_by = "drafter.level"
    level: int = Field(5, ge=3, le=1024)
    window: int = Field(15, ge=1, le=1024)
    guesses: int = Field(15, ge=1, le=1024)
    pool_from_prompt: bool = False

    @property
    def idle(self) -> frozenset[str]:
        return frozenset({"length"})

    def nodes(self, length: int) -> int:
        window = max(lines * self.columns(lines) for lines in range(1, self.level))
        return window + self.guesses * (self.level - 1)

    def num_uniforms(self, length: int) -> int:
        return self.columns(1) - 1

    def columns(self, lines: int) -> int:
        """Columns of a window of 1 <= `lines` <= N-1 lines."""
        return self.window + self.level - 1 - lines

    def start(
        self,
        target: LanguageModel,
        model: None,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        return _Lookahead(self, len(rows), target.device)


class GramPool:
    """For each token, the latest `guesses` continuations of `level` - 1 tokens."""

    def __init__(self, level: int, guesses: int):
        self.level, self.size = level, guesses
        self.grams: dict[int, dict[tuple[int, ...], None]] = {}

    def add(self, gram: Sequence[int]) -> None:
        """Insert an n-gram of `level` tokens as the latest."""
        first, *rest = gram
        latest = self.grams.setdefault(first, {})
        latest.pop(tuple(rest), None)
        latest[tuple(rest)] = None
        if len(latest) > self.size:
            del latest[next(iter(latest))]

    def tree(self, root: int) -> tuple[list[int], list[int]]:
        """Tokens and parents of the continuations of `root`, latest first, common prefixes
        shared."""
        tokens, parents, child = [root], [-1], {}
        for guess in reversed(self.grams.get(root, {})):
            at = 0
            for token in guess:
                if (at, token) not in child:
                    child[at, token] = len(tokens)
                    tokens.append(token)
                    parents.append(at)
                at = child[at, token]
        return tokens, parents


class Window:
    """The lookahead branch of one prompt: `lines` of tokens; line 0 excludes the root."""

    def __init__(self, first: list[int], level: int):
        self.level = level
        self.lines = [first]

    @property
    def tokens(self) -> list[int]:
        return [token for line in self.lines for token in line]

    @property
    def parents(self) -> list[int]:
        """For each token, the index of its parent in `tokens`, -1 for the root."""
        columns = len(self.lines[0])  # without the root
        chain = list(range(-1, columns - 1))
        second = list(range(-1, columns)) if len(self.lines) > 1 else []
        below = range(columns, columns + (len(self.lines) - 2) * (columns + 1))
        return [*chain, *second, *below]

    def advance(self, root: int, new: list[int]) -> list[tuple[int, ...]]:
        """Append the target's argmax after the last line, `new`, as the next line; returns the
        completed n-grams."""
        if len(self.lines) < self.level - 1:  # one more line, one column fewer
            columns = len(self.lines[0])
            self.lines = [line[1:] for line in self.lines] + [new[len(new) - columns :]]
            return []
        first, *rest = self.lines
        grams = list(zip([root, *first], *rest, new, strict=True))
        self.lines = [rest[0][1:], *rest[1:], new]
        return grams


class _Lookahead(Proposer):
    def __init__(self, options: Lookahead, rows: int, device: torch.device):
        self.options, self.device = options, device
        self.pools = [GramPool(options.level, options.guesses) for _ in range(rows)]
        self.windows: list[Window] = []
        self.roots: list[int] = []
        self.read = [0] * rows  # n-grams of the committed text that are in the pool

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        if not self.windows:
            self.windows = [
                self._first(row[:-1], uniforms)
                for row, uniforms in zip(rows, u.tolist(), strict=True)
            ]
        if self.options.pool_from_prompt:
            self._read_text(rows)
        self.roots = [row[-1] for row in rows]
        trees = [pool.tree(root) for pool, root in zip(self.pools, self.roots, strict=True)]
        size = max(len(tokens) for tokens, _ in trees)
        tokens, parents = [], []
        for (guessed, above), window in zip(trees, self.windows, strict=True):
            padding = size - len(guessed)
            tokens.append([*guessed, *[0] * padding, *window.tokens])
            parents.append(
                [*above, *[0] * padding, *(0 if p < 0 else p + size for p in window.parents)]
            )
        at = torch.arange(len(tokens[0]), device=self.device)
        sizes = upload([len(guessed) for guessed, _ in trees], self.device)
        deepest = max(
            self.options.level - 1, len(self.windows[0].lines[0]) + len(self.windows[0].lines) - 1
        )
        draft = Draft.of_parents(
            upload(tokens, self.device),
            upload(parents, self.device),
            valid=at < sizes[:, None],
            max_depth=deepest,
        )
        draft.extra_nodes = len(tokens[0]) - size
        return draft

    def keep(self, places: list[int]) -> None:
        self.pools = [self.pools[place] for place in places]
        self.read = [self.read[place] for place in places]
        if self.windows:
            self.windows = [self.windows[place] for place in places]

    def on_extra_outputs(self, answers: Sequence[Sequence[int]]) -> None:
        for root, pool, window, row in zip(
            self.roots, self.pools, self.windows, answers, strict=True
        ):
            for gram in window.advance(root, list(row[len(row) - len(window.lines[-1]) :])):
                pool.add(gram)

    def _first(self, prompt: list[int], uniforms: list[float]) -> Window:
        """Line 0: random tokens of the prompt, chosen by uniforms of its random stream."""
        return Window(
            [prompt[int(uniform * len(prompt))] for uniform in uniforms], self.options.level
        )

    def _read_text(self, rows: TokenRows) -> None:
        level = self.options.level
        for b, row in enumerate(rows):
            for start in range(self.read[b], len(row) - level + 1):
                self.pools[b].add(row[start : start + level])
            self.read[b] = max(self.read[b], len(row) - level + 1)
