"""Lookahead decoding against its definition: every token of the window from a forward of its own, without a cache; the
pool as all n-grams ever seen."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters import lookahead
from methods.method import build_method
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.tiny_models import language_model, prompts

LEVEL, WINDOW, GUESSES, NEW, VOCAB = 4, 3, 2, 40, 6


class Reference:
    """One prompt's window as cells (line, column) -> token, and its pool as the list of all n-grams in order."""

    def __init__(self, target, line: list[int], from_text: bool):
        self.target, self.from_text = target, from_text
        self.cells = {(0, 1 + i): token for i, token in enumerate(line)}
        self.lines, self.columns = 1, len(line) + 1
        self.seen: list[tuple[int, ...]] = []
        self.text = 0

    def begin(self, row: list[int]) -> None:
        """A cycle begins with these committed tokens."""
        self.cells[0, 0] = row[-1]
        while self.from_text and self.text + LEVEL <= len(row):
            self.seen.append(tuple(row[self.text:self.text + LEVEL]))
            self.text += 1

    def guesses(self, root: int) -> list[tuple[int, ...]]:
        """The latest GUESSES different ones, latest first."""
        found = []
        for first, *rest in reversed(self.seen):
            if first == root and tuple(rest) not in found:
                found.append(tuple(rest))
        return found[:GUESSES]

    def end(self, row: list[int]) -> None:
        """The target answers behind the last line."""
        new = []
        for column in range(self.columns):
            line = [self.cells[0, c] for c in range(column + 1)]
            below = [self.cells[r, column] for r in range(1, self.lines)]
            with torch.inference_mode():
                new.append(int(self.target.model(torch.tensor([row[:-1] + line + below])).logits[0, -1].argmax()))
        old = self.cells
        if self.lines < LEVEL - 1:
            self.cells = {(r, c - 1): token for (r, c), token in old.items() if c > 0}
            self.cells |= {(self.lines, c - 1): new[c] for c in range(1, self.columns)}
            self.lines, self.columns = self.lines + 1, self.columns - 1
            return
        for c in range(self.columns):
            self.seen.append((*(old[r, c] for r in range(self.lines)), new[c]))
        self.cells = {(r - 1, c): token for (r, c), token in old.items() if r > 0}
        self.cells |= {(self.lines - 1, c): new[c] for c in range(self.columns)}


def watched(monkeypatch, from_text: bool):
    """Generations of ragged prompts, and of every cycle the committed rows, the windows' lines and the draft."""
    log = []
    propose = lookahead._Lookahead.propose

    def watch(self, rows, u):
        draft = propose(self, rows, u)
        log.append(([list(row) for row in rows], [[list(line) for line in w.lines] for w in self.windows], draft))
        return draft
    monkeypatch.setattr(lookahead._Lookahead, "propose", watch)
    target = language_model("llama", layers=2, seed=3, vocab=VOCAB)
    drafter = registry.drafter("lookahead")(level=LEVEL, window=WINDOW, guesses=GUESSES, pool_from_prompt=from_text)
    method = build_method(target, None, drafter, registry.rule("greedy")(), Sampling(0.0), 1)
    rows = prompts(3, seed=1, vocab=VOCAB)
    requests = [Request(ids, f"lookahead/{i}") for i, ids in enumerate(rows)]
    return target, drafter, rows, generate(method, requests, Limits(NEW, frozenset())), log


def guessed(draft: Draft, row: int) -> set[tuple[int, ...]]:
    """The candidates of a row as whole paths from the root."""
    draft = draft.candidates()
    valid, parents, tokens = (x[row].tolist() for x in (draft.valid, draft.parents, draft.tokens))
    nodes = [i for i, ok in enumerate(valid) if ok]
    leaves = set(nodes) - {parents[i] for i in nodes} - {0}
    return {tuple(tokens[j] for j in nodes[1:] if draft.ancestors[row, leaf, j]) for leaf in leaves}


@pytest.mark.parametrize("from_text", [False, True])
def test_the_window_and_the_pool_follow_the_definition(monkeypatch, from_text: bool) -> None:
    target, drafter, rows, generations, log = watched(monkeypatch, from_text)
    for b, prompt in enumerate(rows):
        line = log[0][1][b][0]
        assert len(line) == WINDOW + LEVEL - 3 and set(line) <= set(prompt)
        reference = Reference(target, line, from_text)
        for committed, windows, draft in log:
            row = committed[b]
            if len(row) == len(prompt) + NEW:
                break
            reference.begin(row)
            assert windows[b] == [[reference.cells[r, c] for c in range(0 if r else 1, reference.columns)]
                                  for r in range(reference.lines)]
            assert guessed(draft, b) == set(reference.guesses(row[-1]))
            assert draft.nodes <= drafter.nodes(1)
            reference.end(row)
    accepted = [a for g in generations for a in g.accepted]
    assert min(accepted) == 0 and max(accepted) == LEVEL - 1, "nothing came true, or everything"


@given(st.lists(st.lists(st.integers(0, 2), min_size=LEVEL, max_size=LEVEL), max_size=30), st.integers(1, 4))
def test_guesses_share_their_beginnings(grams, size):
    pool = lookahead.Pool(LEVEL, size)
    for gram in grams:
        pool.add(gram)
    tokens, parents = pool.tree(0)
    latest = list(dict.fromkeys(tuple(rest) for first, *rest in reversed(grams) if first == 0))[:size]
    assert len(set(zip(parents, tokens, strict=True))) == len(tokens), "siblings are distinct"
    assert all(parent < i for i, parent in enumerate(parents)) and len(tokens) <= 1 + size * (LEVEL - 1)
    paths = []
    for leaf in (i for i in range(1, len(tokens)) if i not in parents):
        path, at = [], leaf
        while at:
            path, at = [tokens[at], *path], parents[at]
        paths.append(tuple(path))
    assert sorted(paths) == sorted(latest)
    if latest:
        assert tokens[1:LEVEL] == list(latest[0]), "the latest stands first"
