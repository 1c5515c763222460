"""The demo's answer: every emitted token once, in order, with the clause that kept it."""

from __future__ import annotations

import pytest

from bench.demo import STYLES, answer, coloured
from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from results.store.traces import Clause
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize("new", [1, 2, 3, 23])
def test_the_answer_is_that_of_the_decode(new: int) -> None:
    method = build_method(
        language_model("llama", layers=3, seed=4),
        language_model(layers=1, seed=4),
        registry.drafter("model")(),
        registry.rule("mars")(theta=0.1),
        Sampling(1.0),
        4,
    )
    request, limits = Request(prompts(1)[0], "0/test"), Limits(new, frozenset())
    ids, clauses = zip(*answer(method, request, limits), strict=True)
    [plain] = generate(method, [request], limits)
    assert list(ids) == plain.output_ids and clauses[0] == "drawn"
    assert sum(clause != "drawn" for clause in clauses) == sum(plain.accepted)
    assert clauses.count("relaxed") == plain.relaxed


def test_tokens_are_coloured_by_their_clause() -> None:
    clauses = [Clause.DRAWN, Clause.STRICT, Clause.RELAXED, Clause.DRAWN]
    text = coloured(list(enumerate(clauses)), "abcd".__getitem__)
    answered, legend = text.plain.split("\n\n")
    assert answered == "abcd" and [line.split()[0] for line in legend.splitlines()] == [
        "1",
        "0",
        "1",
        "2",
    ]
    assert [span.style for span in text.spans[:4]] == [STYLES[clause][0] for clause in clauses]
