"""Samples of every schema are read; what an earlier one does not know is unknown, not different."""

from __future__ import annotations

import dataclasses
import json

import pytest

from methods.batch import Generation, total
from methods.rules import walk as rules
from results.store import sample as stored
from results.store import traces
from results.store.merge import difference
from tests.helpers.synthetic_cells import sample

SCHEMA_1 = {
    "id": "p0", "output_ids": [5, 6, 7], "text": "a\n\nb", "texts": ["a", "b"], "turn_tokens": [2, 1], "committed": [2],
    "accepted": [1], "relaxed": 1, "greedier": 0, "drafted": 0, "pruned": 0, "finish": ["eos", "eos"], "score": 1.0,
    "answer": None, "details": {}, "seed": 0, "nll": 0.5, "prompt_tokens": 9, "flags": {"sure": 2}}
"""As the store wrote it before."""


def test_turns_add_up() -> None:
    whole = total([Generation(committed=[2], nodes=[3], relaxed=1, flags={"a": 1, "b": 0}, output_ids=[5, 6], nll=0.5),
                   Generation(committed=[1, 4], nodes=[0, 5], relaxed=2, flags={"a": 2, "c": 4}, decode_s=2.0)])
    assert whole == Generation(committed=[2, 1, 4], nodes=[3, 0, 5], relaxed=3, flags={"a": 3, "b": 0, "c": 4},
                               output_ids=[5, 6], decode_s=2.0, nll=0.5)
    assert total([]) == Generation()


def test_a_line_of_schema_1_is_read() -> None:
    read = stored.from_json(json.dumps(SCHEMA_1).encode())
    assert isinstance(read, stored.Sample) and type(read) is stored.Sample
    assert (read.texts, read.committed, read.flags, read.nll) == (["a", "b"], [2], {"sure": 2}, 0.5)
    assert (read.nodes, read.levels, read.prompt_sha256) == ([], [], None)


def test_a_line_holds_the_sample_and_nothing_twice() -> None:
    own = sample("p0", prompt_sha256="0" * 64, committed=[2], nodes=[3], levels=[2])
    line = stored.to_plain(own)
    assert next(iter(line)) == "id" and "text" not in line and "seed" not in line
    assert stored.from_json(json.dumps(line).encode()) == own


@pytest.mark.parametrize("without", ["prompt_sha256", "nodes"])
def test_a_line_that_is_of_no_schema_is_refused(without: str) -> None:
    line = stored.to_plain(sample("p0"))
    del line[without]
    with pytest.raises(ValueError, match=without):
        stored.from_json(json.dumps(line).encode())


def test_what_is_unknown_does_not_differ() -> None:
    old = stored.from_json(json.dumps(SCHEMA_1).encode())
    assert isinstance(old, stored.Sample)
    new = dataclasses.replace(old, prompt_sha256="a" * 64, nodes=[3], levels=[2])
    assert difference([old], [new]) == ""
    assert difference([new], [dataclasses.replace(new, nodes=[4])]) == "1 of 1 prompts differ, first p0 in nodes"


def test_methods_and_results_use_the_same_words_of_clauses() -> None:
    assert [clause.word for clause in rules.Clause] == list(traces.Clause)
    assert [clause.word for clause in rules.KEPT] == list(traces.KEPT)
