"""Drafters against their definitions: lookahead, suffix decoding, early exit; the forwards of all
of them, counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request, generate
from methods.drafters import lookahead
from methods.drafters.lookup import Suffix, speculate
from methods.engine.language_model import LanguageModel
from methods.engine.source import ModelError
from methods.heads.head import Head
from methods.sampling import Sampling
from methods.trees.draft import Draft
from tests.helpers.architectures import config_of, random_model
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import OPTIONS, SMALL, method_of, path_to, requests
from tests.helpers.tiny_models import language_model

LEVEL, WINDOW, GUESSES, NEW, VOCAB = 4, 3, 2, 40, 6


class Reference:
    """One prompt's window as cells (line, column) -> token, and its pool as the list of all n-grams
    in order."""

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
            self.seen.append(tuple(row[self.text : self.text + LEVEL]))
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
                logits = self.target.model(torch.tensor([row[:-1] + line + below])).logits
            new.append(int(logits[0, -1].argmax()))
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


def guessed(draft: Draft, row: int) -> set[tuple[int, ...]]:
    """The candidates of a row as whole paths from the root."""
    draft = draft.candidates()
    nodes, parents = draft.valid[row].nonzero()[:, 0].tolist(), draft.parents[row].tolist()
    leaves = set(nodes) - {parents[i] for i in nodes} - {0}
    return {tuple(path_to(draft, row, leaf)) for leaf in leaves}


@pytest.mark.parametrize("from_text", [False, True])
def test_the_window_and_the_pool_follow_the_definition(watched, from_text: bool) -> None:
    """Of ragged prompts."""
    log = watched(lookahead._Lookahead)
    target = language_model("llama", layers=2, seed=3, vocab=VOCAB)
    drafter = registry.drafter("lookahead")(
        level=LEVEL, window=WINDOW, guesses=GUESSES, pool_from_prompt=from_text
    )
    asked = requests(3, seed=1, vocab=VOCAB)
    generations = generate(method_on(target, None, drafter), asked, Limits(NEW, frozenset()))
    for b, request in enumerate(asked):
        prompt = request.input_ids
        line = log[0][2][b][0]
        assert len(line) == WINDOW + LEVEL - 3 and set(line) <= set(prompt)
        reference = Reference(target, line, from_text)
        for committed, draft, windows in log:
            row = committed[b]
            if len(row) == len(prompt) + NEW:
                break
            reference.begin(row)
            assert windows[b] == [
                [reference.cells[r, c] for c in range(0 if r else 1, reference.columns)]
                for r in range(reference.lines)
            ]
            assert guessed(draft, b) == set(reference.guesses(row[-1]))
            assert draft.nodes <= drafter.nodes(1)
            reference.end(row)
    accepted = [a for g in generations for a in g.accepted]
    assert min(accepted) == 0 and max(accepted) == LEVEL - 1, "nothing came true, or everything"


def slow(text: list[int], row: list[int], options: Suffix, length: int) -> tuple[list[int], float]:
    """As the docstring says it: every suffix, every place, token by token."""
    best, best_score = [], 0.0
    for m in range(1, min(options.max_depth, len(row) - 1) + 1):

        def places(pattern: list[int]) -> int:
            return sum(
                text[i : i + len(pattern)] == pattern for i in range(len(text) - len(pattern) + 1)
            )

        pattern, draft, probability, score = row[-m:], [], 1.0, 0.0
        while len(draft) < min(length, int(m * options.factor + 1e-6), options.max_depth - m):
            counts = {t: places([*pattern, t]) for t in sorted(set(text) - {-1})}
            token = max(counts, key=lambda t: counts[t], default=None)
            if token is None or not counts[token]:
                break
            probability *= counts[token] / places(pattern)
            if probability < options.min_probability:
                break
            draft.append(token)
            score += probability
            pattern = [*pattern, token]
        if places(row[-m:]) and score >= best_score:
            best, best_score = draft, score
    return best, best_score


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.lists(st.integers(-1, 3), max_size=30),
    st.integers(2, 9),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(1, 6),
)
def test_drafts_are_those_of_a_slow_count(
    row: list[int], corpus: list[int], depth: int, factor: float, least: float, length: int
) -> None:
    options = Suffix(max_depth=depth, factor=factor, min_probability=least)
    for text in (row, corpus):
        found, score = speculate(np.array(text, np.int64), np.array(row), options, length)
        expected, expected_score = slow(text, row, options, length)
        assert found == expected and score == pytest.approx(expected_score)


def test_a_corpus_of_the_answers_is_copied_from(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"

    def run(**options: Path) -> list[Generation]:
        method = method_of("suffix", sampling=Sampling(0.0), length=5, **options)
        return generate(method, requests(6), Limits(24, frozenset()))

    plain = run()
    file.write_text(json.dumps({"answers": [{"answer": g.output_ids} for g in plain]}))
    copied = run(corpus=file)
    assert [g.output_ids for g in copied] == [g.output_ids for g in plain]
    assert sum(sum(g.accepted) for g in copied) > sum(sum(g.accepted) for g in plain)


def test_an_early_exit_of_another_architecture_is_refused() -> None:
    with pytest.raises(ModelError, match="a gpt2 model cannot be ended after some of its layers"):
        method_of("early_exit", target=random_model(config_of("gpt2")), exit_layer=1)


CASES = [
    ("model", {}, 4),
    ("model", {"branching": [2, 2]}, 3),
    ("model", {"stop_below": 0.3}, 4),
    ("eagle3", {"tree": "chain"}, 4),
    ("suffix", {}, 3),
    ("eagle3", SMALL, 3),
    ("eagle2", {"tree": "sampled", "branching": [3, 2]}, 4),
    ("eagle", OPTIONS["eagle"], 3),
    ("medusa", OPTIONS["medusa"], 3),
    ("lookahead", OPTIONS["lookahead"], 3),
]


@pytest.mark.parametrize(("name", "options", "length"), CASES)
def test_forwards_of_a_cycle(
    name: str, options: dict[str, Any], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = method_of(name, sampling=Sampling(0.0), length=length, **options)
    cycles: list[list[int]] = []
    drafting = False

    @contextmanager
    def probe(phase: str) -> Iterator[None]:
        nonlocal drafting
        drafting = phase == "draft"
        if drafting:
            cycles.append([])
        yield
        drafting = False

    def counted(kind: type, attribute: str, tokens_of) -> None:
        original = getattr(kind, attribute)

        def run(self, *args: Any, **kwargs: Any) -> Any:
            if drafting:
                cycles[-1].append(tokens_of(args[0]))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(kind, attribute, run)

    counted(LanguageModel, "forward", lambda tokens: tokens.shape[1])
    counted(Head, "step", lambda tokens: tokens.shape[1])
    if name == "medusa":
        counted(type(method.model.model), "forward", lambda hidden: 1)
    [answer] = generate(method, [Request([1, 2, 3, 1, 2], "x")], Limits(12, frozenset()), probe)
    assert len(cycles) == len(answer.committed) > 1
    for run, levels in zip(cycles, answer.levels, strict=True):
        first, *rest = method.drafter.forwards(length, levels) or (None,)
        assert run[1:] == rest and bool(run) == (first is not None)
        assert not run or first == 1 <= run[0], (
            "the first forward also reads what was committed before"
        )
