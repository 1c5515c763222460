"""The demo's answer: every emitted token once, in order, with the clause that kept it."""

from __future__ import annotations

import pytest

from bench.demo import STYLES, answer, coloured, emitted
from methods import registry
from methods.decode import Limits, Request, generate
from methods.method import build_method
from methods.sampling import Sampling
from results.store.traces import Clause, Cycle, Node
from tests.helpers.tiny_models import language_model, prompts


class Spelling:
    """Stands where a tokenizer would: a token's text is its number."""

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(map(str, ids))


@pytest.mark.parametrize("new", [2, 3, 23])
def test_the_answer_is_that_of_the_decode(new: int) -> None:
    target = language_model("llama", layers=3, seed=4)
    target.tokenizer = Spelling()
    method = build_method(target, language_model(layers=1, seed=4), registry.drafter("model")(),
                          registry.rule("mars")(theta=0.1), Sampling(1.0), 4)
    request, limits = Request(prompts(1)[0], "0/test"), Limits(new, frozenset())
    nodes = answer(method, request, limits, {})
    [plain] = generate(method, [request], limits)
    assert [node.token for node in nodes] == plain.output_ids
    assert nodes[0].clause == "drawn"
    assert sum(node.clause != "drawn" for node in nodes) == sum(plain.accepted)
    assert sum(node.clause == "relaxed" for node in nodes) == plain.relaxed


def test_tokens_are_coloured_by_their_clause() -> None:
    def node(text: str, clause: Clause, parent: int = 0) -> Node:
        return Node(0, text, parent, None, None, None, clause)

    cycle = Cycle({}, 1, "", (node("a", Clause.ROOT, -1), node("b", Clause.STRICT), node("c", Clause.RELAXED),
                              node("x", Clause.REJECTED)), node("d", Clause.DRAWN))
    nodes = emitted([cycle], 9)
    text = coloured(nodes)
    answered, legend = text.plain.split("\n\n")
    assert answered == "abcd" and [line.split()[0] for line in legend.splitlines()] == ["1", "0", "1", "2"]
    assert [span.style for span in text.spans[:4]] == [STYLES[clause][0] for clause in (
        Clause.DRAWN, Clause.STRICT, Clause.RELAXED, Clause.DRAWN)]
