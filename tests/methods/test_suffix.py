"""Suffix decoding: its drafts against a slow count over all places, and a corpus that is copied from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import registry
from methods.batch import Generation
from methods.decode import Limits, Request, generate
from methods.drafters.lookup import Suffix, speculate
from methods.method import build_method
from methods.rules._files import Answer, Answers
from methods.sampling import Sampling
from tests.helpers.tiny_models import language_model, prompts


def slow(text: list[int], row: list[int], options: Suffix, length: int) -> tuple[list[int], float]:
    """As the docstring says it: every suffix, every place, token by token."""
    best, best_score = [], 0.0
    for m in range(1, min(options.max_depth, len(row) - 1) + 1):
        def places(pattern: list[int]) -> int:
            return sum(text[i:i + len(pattern)] == pattern for i in range(len(text) - len(pattern) + 1))

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
@given(st.lists(st.integers(0, 3), min_size=1, max_size=24), st.lists(st.integers(-1, 3), max_size=30),
       st.integers(2, 9), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 6))
def test_drafts_are_those_of_a_slow_count(row: list[int], corpus: list[int], depth: int, factor: float, least: float,
                                          length: int) -> None:
    options = Suffix(max_depth=depth, factor=factor, min_probability=least)
    for text in (row, corpus):
        found, score = speculate(np.array(text, np.int64), np.array(row), options, length)
        expected, expected_score = slow(text, row, options, length)
        assert found == expected and score == pytest.approx(expected_score)


def test_a_longer_suffix_drafts_more_tokens() -> None:
    row = [1, 2, 3, 4, 5, 6, 9, 1, 2, 3]
    assert speculate(np.array(row), np.array(row), Suffix(), 10)[0] == [4, 5, 6]
    assert speculate(np.array(row), np.array(row), Suffix(factor=2.0), 10)[0] == [4, 5, 6, 9, 1, 2]
    assert speculate(np.array(row), np.array(row), Suffix(min_probability=0.6), 10)[0] == []  # half the places end


def test_a_corpus_of_the_answers_is_copied_from(tmp_path: Path) -> None:
    target, file = language_model("llama", layers=2), tmp_path / "answers.json"
    requests = [Request(ids, f"0/suffix/{i}") for i, ids in enumerate(prompts(6))]

    def run(**options: Path) -> list[Generation]:
        method = build_method(target, None, Suffix(**options), registry.rule("lossless")(), Sampling(0.0), 5)
        return generate(method, requests, Limits(24, frozenset()))

    plain = run()
    answers = [Answer(answer=g.output_ids, drafted=g.output_ids) for g in plain]
    file.write_text(Answers(target="t", fingerprint=target.fingerprint, draft="d", corpus={}, draft_fingerprint="x",
                            answers=answers).model_dump_json())
    copied = run(corpus=file)
    assert [g.output_ids for g in copied] == [g.output_ids for g in plain]
    assert sum(sum(g.accepted) for g in copied) > sum(sum(g.accepted) for g in plain)


def test_a_corpus_of_another_target_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(Answers(target="t", fingerprint="x", draft="d", draft_fingerprint="y", corpus={},
                            answers=[]).model_dump_json())
    lossless = registry.rule("lossless")()
    method = build_method(language_model("llama"), None, Suffix(corpus=file), lossless, Sampling(), 3)
    with pytest.raises(ValueError, match="train mismatches") as refusal:
        method.proposer([[1, 2]], 10)
    assert "\n" not in str(refusal.value)
