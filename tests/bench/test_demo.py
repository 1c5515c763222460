"""The demo's answer: every emitted token once, in order, with the clause that kept it."""

import pytest

from bench.demo import STYLES, Shown, answer, legend, marked
from methods import registry
from methods.decode import Limits, Request, generate
from results.store.traces import Clause
from tests.helpers.decoding import method_on
from tests.helpers.tiny_models import language_model, prompts


@pytest.mark.parametrize("new", [1, 2, 3, 23])
def test_the_answer_is_that_of_the_decode(new):
    models = language_model("llama", layers=3, seed=4), language_model(layers=1, seed=4)
    method = method_on(*models, "model", registry.rule("mars")(theta=0.1), 1.0)
    request, limits = Request(prompts(1)[0], "0/test"), Limits(new, frozenset())
    ids, clauses = zip(*answer(method, request, limits), strict=True)
    [plain] = generate(method, [request], limits)
    assert list(ids) == plain.output_ids and clauses[0] == "drawn"
    assert sum(clause != "drawn" for clause in clauses) == sum(plain.accepted)
    assert clauses.count("relaxed") == plain.relaxed


CLAUSES = [Clause.DRAWN, Clause.STRICT, Clause.RELAXED, Clause.DRAWN]


@pytest.mark.parametrize(("is_plain", "text"), [(False, "abcd"), (True, "<a>b[c]<d>")])
def test_marks_say_what_colours_say(is_plain, text):
    shown = marked(list(enumerate(CLAUSES)), "abcd".__getitem__, is_plain=is_plain)
    assert shown.plain == text
    assert is_plain or [span.style for span in shown.spans] == [STYLES[how][0] for how in CLAUSES]


def test_two_answers_are_compared():
    mars = Shown("MARS", list(enumerate(CLAUSES)), 2, False, "16")
    lossless = Shown("lossless", [(0, Clause.DRAWN), (1, Clause.STRICT)], 1, True, "4")
    assert mars.heading() == "MARS: WRONG (16), 4 tokens in 2 cycles: 1.5 per cycle"
    assert lossless.heading().startswith("lossless: right (4), 2 tokens in 1 cycles")
    names, *lines = legend([lossless, mars], is_plain=True).plain.splitlines()
    assert names.split() == ["lossless", "MARS"]
    assert [line.split()[:2] for line in lines] == [["1", "1"], ["0", "0"], ["0", "1"], ["1", "2"]]
