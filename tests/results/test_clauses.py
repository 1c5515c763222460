"""The two rooms that must not import each other spell the clauses alike."""

from __future__ import annotations

from methods.rules import walk as rules
from results.store import traces as store


def test_methods_and_results_use_the_same_words() -> None:
    assert [clause.word for clause in rules.Clause] == list(store.Clause)
    assert [clause.word for clause in rules.KEPT] == list(store.KEPT)
