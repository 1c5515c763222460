"""Scorers against published gold answers, the field's own functions, and code that means harm."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import os
import pickle
import random
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.base import TaskError
from tasks.judge_prompts import Question, is_penalised
from tasks.scorers.base import Nothing
from tasks.scorers.code import Code, solution
from tasks.scorers.extract import longest_program
from tasks.scorers.harness import Harness
from tasks.scorers.ifeval import IFEval
from tasks.scorers.livecodebench import LiveCodeBench, read_tests
from tasks.scorers.rouge import RougeL
from tasks.sources import DATA, RowSource
from tests.helpers.ci import needs_bubblewrap
from tests.helpers.composing import COMPOSER
from tests.helpers.rehearsal.rows import FUNCTIONS, PROBLEMS, ROWS
from tests.tasks.conftest import CASES

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("LEEWAY_SHARED", ROOT.parent / "shared")) / "data"
# Published solutions that do not pass: evalplus' sanitiser drops functions without a return
# statement (flatten, adjac, heapify).
EXCEPTIONS = {"humaneval": set(), "mbpp": {512, 630, 940}}


def published(name: str):
    """The rows of a shipped file, or else of a reference file."""
    path = DATA / name if (DATA / name).is_file() else SHARED / name
    if not path.is_file():
        pytest.skip(f"no reference data at {path}")
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def harness(task: str, filter: str | None = None) -> Harness:
    """The scorer that a task's YAML names."""
    options = COMPOSER.section("task", task)["scorer"]
    return Harness(**{**options, "filter": filter or options["filter"]})


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    CASES["gsm8k formats"],
)
@pytest.mark.parametrize("target", ["1800", "1,800"])
def test_gsm8k_formats(text, strict, flexible, target):
    score = harness("gsm8k").score({"target": target}, [text])
    assert score.details == {"strict-match": strict, "flexible-extract": flexible}
    assert score.value == flexible
    assert harness("gsm8k", "strict-match").score({"target": target}, [text]).value == strict


def test_published_gsm8k_answers_are_right_under_both_filters():
    scorer = harness("gsm8k")
    rows = published("gsm8k/test.jsonl.gz")
    assert len(rows) == 1319
    for row in rows:
        gold = row["answer"]
        target = gold.split("####")[-1].strip()
        details = scorer.score({"target": target}, [gold]).details
        assert details == {"strict-match": 1.0, "flexible-extract": 1.0}
    assert scorer.score({"target": target}, [gold + "1"]).value == 0


@pytest.mark.parametrize(
    ("text", "letter"),
    CASES["letters"],
)
def test_letters(text, letter):
    for task in ("csqa", "mmlu", "mmlu_pro_arc"):
        if task == "mmlu_pro_arc" and text.startswith(("I. ", "The answer I")):
            continue  # its questions have an option I
        score = harness(task).score({"target": letter or "A"}, [text])
        assert (score.value, score.answer) == (float(letter is not None), letter)
    assert harness("csqa").score({"target": "E"}, ["E"]).answer == "E"
    assert harness("mmlu").score({"target": "A"}, ["E"]).answer is None


def test_published_csqa_answers_are_right():
    rows, scorer = published("csqa/validation.jsonl.gz"), harness("csqa")
    assert len(rows) == 1221
    for row in rows:
        gold = row["answerKey"]
        other = "ABCDE"["ABCDE".index(gold) - 1]
        assert scorer.score({"target": gold}, [gold]).details == {"get_response": 1, "flexible": 1}
        assert scorer.score({"target": gold}, [other]).value == 0


def test_without_a_reference_there_is_no_score():
    assert RougeL(name="rouge").score({"target": None}, ["a"]).value is None
    assert Code(name="code").score({"target": "x"}, ["a"]).value is None
    assert Nothing(name="none").score({"target": "x"}, ["a"]).value is None


def test_rouge_counts_the_longest_common_subsequence():
    reference = {"target": "four ships left port"}
    score = RougeL(name="rouge").score(reference, ["the ships left their port"])
    assert score.value == pytest.approx(2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5))


# -- IFEval
# ----------------------------------------------------------------------------------------------------------


def counts_sentences(row) -> bool:
    """Does an instruction need nltk's sentence model?"""
    model = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
    return not model.isdisjoint(row["instruction_id_list"])


def test_ifeval_agrees_with_lm_eval_on_published_prompts():
    from lm_eval.tasks.ifeval import utils

    rows = published("ifeval/input_data.jsonl.gz")
    plain = [row for row in rows if not counts_sentences(row)][:240]
    path = DATA / "ifeval" / "input_data.jsonl.gz"
    read = {row["key"]: row for row in RowSource(path=str(path)).rows("ifeval")}
    titled = "<<title>> *one* *two* *three* [a] [b]\n\n***\n\nP.S. {0}"
    styles = ["{0}", "no commas here at all", titled, '"WHY, {0}"']
    seen, by_instruction = [], IFEval(name="ifeval", by="inst_level_loose")
    assert (by_instruction.metric, by_instruction.proportion) == ("inst_level_loose_acc", False)
    for number, row in enumerate(plain):
        text = styles[number % len(styles)].format(row["prompt"])
        example = utils.InputExample(
            row["key"], row["instruction_id_list"], row["prompt"], row["kwargs"]
        )
        random.seed(0)
        strict, loose = (
            getattr(utils, f"test_instruction_following_{kind}")(example, text)
            for kind in ("strict", "loose")
        )
        score = IFEval(name="ifeval").score(read[row["key"]], [text])
        assert score.value == strict.follow_all_instructions
        assert score.details["prompt_level_loose_acc"] == loose.follow_all_instructions
        each = strict.follow_instruction_list
        assert score.answer == "".join("y" if followed else "n" for followed in each)
        assert score.details["inst_level_strict_acc"] == sum(each) / len(each)
        share = by_instruction.score(read[row["key"]], [text]).value
        assert share == sum(loose.follow_instruction_list) / len(each)
        seen.append(score.value)
    assert len(seen) >= 200 and 0 < sum(seen) < len(seen)


def test_an_answer_scores_the_same_each_time():
    row = {
        "prompt": "Use it often.",
        "instruction_id_list": ["keywords:letter_frequency"],
        "kwargs": [{"let_relation": "at least", "letter": "#", "let_frequency": 2}],
    }
    scorer = IFEval(name="ifeval")
    random.seed(5)
    after = random.Random(5).random()
    scores = {scorer.score(row, ["the quick brown fox jumps over it"]).value for _ in range(20)}
    assert len(scores) == 1
    assert random.random() == after, "the program's own chance goes on where it was"


def test_ifeval_prints_and_fetches_nothing():
    code = (
        "import os; from tasks.scorers.ifeval import _checkers; before = dict(os.environ); "
        "_checkers(); assert dict(os.environ) == before"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "punkt" not in ran.stdout + ran.stderr


# -- code
# ------------------------------------------------------------------------------------------------------------


def code_score(reference: dict, text: str):
    return Code(name="code", timeout_s=600.0).score(reference, [text])


def function_score(text: str, row=FUNCTIONS[0]):
    reference = {"code": row["prompt"], "test": row["test"], "entry_point": row["entry_point"]}
    return code_score(reference, text)


LOOSE = """Sure:
```python
def add_1(x: int) -> int:
    return x + 1

print(add_1(1))
```
It adds one."""
HELPED = """def helper(y):
    return y + 1

def add_1(x):
    return helper(x)

assert add_1(1) == 3"""


@needs_bubblewrap
@pytest.mark.parametrize(
    "text",
    ["    return x + 1\n", "return x + 1", "```python\nreturn x + 1\n```", LOOSE, HELPED],
)
def test_answers_in_many_forms_pass(text):
    score = function_score(text)
    assert (score.value, score.answer) == (1, "passed"), "a judge is trained on the answer"


@needs_bubblewrap
@pytest.mark.parametrize(
    "text",
    [
        "    return x + 2\n",
        "",
        "I cannot.",
        "def add_1(x): return x +",
        "```python\n```",
        "\x00",
        "def add_1(x):\x00 return x + 1",
        "(" * 3000,
        "\x1b[2J",
        "[" * 3000 + "]" * 3000,
        "-" * 20000 + "1",
        "def add_1(x): return '\ud800'",
    ],
)
def test_wrong_answers_and_what_is_no_program_score_zero(text):
    assert function_score(text).value == 0


def problem(signature: str, test: str, before: str = "") -> dict[str, str]:
    """A row of HumanEval's form, whose test is the body of its check."""
    return {
        "prompt": f"{before}def {signature}:\n    '''As its name says.'''\n",
        "entry_point": signature.partition("(")[0],
        "test": f"def check(candidate):\n    assert {test}\n",
    }


HALF = problem("twice(x)", "half(candidate(3)) == 3", "def half(x):\n    return x / 2\n\n\n")
COMMON = problem("common(a, b)", "candidate(12, 18) == 6")


@needs_bubblewrap
@pytest.mark.parametrize(
    ("row", "text", "value"),
    [
        (HALF, "    return 2 * x\n", 1),
        (HALF, "```python\ndef twice(x):\n    return 2 * x\n```", 1),
        (HALF, "```python\ndef double(x):\n    return 2 * x\n```", 0),
        (COMMON, "import math\nfrom math import gcd as common", 1),
        (COMMON, "import math\nfrom math import lcm as common", 0),
    ],
)
def test_tests_use_what_the_prompt_defines_and_answers_may_import(row, text, value):
    assert function_score(text, row=row).value == value


@needs_bubblewrap
def test_assertions_and_plus_tests():
    for row in PROBLEMS[:2]:
        reference = {"test": row["test_list"], "setup": row["test_setup_code"]}
        assert code_score(reference, row["code"]).value == 1
        assert code_score(reference, row["code"].replace("*", "+")).value == 0
    plus = {**FUNCTIONS[1], "test": ROWS["humaneval_plus"][2]["test"]}
    for end, value in (("2.5 + 1e-9", 1), ("2.6", 0)):
        text = f"def add_2(x):\n    return x + 2 if x == 1 else {end}"
        assert function_score(text, plus).value == value


DOUBLE = """from functools import lru_cache
def twice(x):
    return 2 * x
"""


@needs_bubblewrap
@pytest.mark.parametrize(
    "program",
    [
        DOUBLE + "double = lru_cache(None)(twice)",
        DOUBLE + "double: object = twice",
        "import operator\ndouble = lambda x: operator.mul(2, x)",
        "n = 2\ndouble = n.__mul__",
        "class double(int):\n    def __new__(cls, x):\n        return int(2 * x)",
        "double = 2 * x\nreturn double",
        "    double = 2 * x\n    return double",
        "if x:\n    return x + x\nimport math as double\nreturn 2 * x",
    ],
)
@pytest.mark.parametrize("form", ["{}", "So:\n```python\n{}\n```\nDone."])
def test_an_answer_binds_its_entry_point_in_any_way(form, program):
    row = problem("double(x)", "[candidate(x) for x in (3, 4)] == [6, 8]")
    assert function_score(form.format(program), row=row).value == 1


@needs_bubblewrap
def test_the_only_function_that_a_test_calls_may_have_a_builtins_name():
    reference = {"test": ["assert sum(10, 15) == 6", "assert sum(4, 6) == 3"]}  # MBPP/126
    divisors = "{d for d in range(1, a + 1) if a % d == b % d == 0}"
    right = f"def sum(a, b):\n    total = 0\n    for d in {divisors}:\n        total += d\n    return total"
    assert code_score(reference, right).value == 1
    assert code_score(reference, "def total(a, b):\n    return a").value == 0


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path"), [("humaneval", "humaneval/test.jsonl.gz"), ("mbpp", "mbpp/mbpp.jsonl")]
)
def test_published_solutions_pass(name, path):
    broken = set()
    for row in published(path):
        if name == "humaneval":
            score = function_score(row["canonical_solution"], row=row)
        else:
            reference = {"test": row["test_list"], "setup": row["test_setup_code"]}
            score = code_score(reference, row["code"])
        if score.value != 1:
            broken.add(row["task_id"])
    assert broken == EXCEPTIONS[name]


# -- LiveCodeBench
# ---------------------------------------------------------------------------------------------------


@needs_bubblewrap
def test_contest_answers():
    by_input, by_call = ROWS["livecodebench"][:2]
    scorer = LiveCodeBench(name="livecodebench", timeout_s=600)
    reads = "Answer:\n```python\nprint(sum(map(int, input().split())))\n```"
    calls = (
        "```python\nclass Solution:\n    def total(self, some: List[int], more):\n"
        "        return sum(some) + more\n```"
    )
    assert scorer.score(by_input, [reads]).value == scorer.score(by_call, [calls]).value == 1
    wrong = scorer.score(by_input, [reads.replace("sum", "max")])
    assert wrong.value == 0 and wrong.answer.startswith("test 1 of 2: AssertionError: wrong output")
    assert scorer.score(by_call, [calls.replace("+ more", "")]).value == 0
    assert scorer.score(by_call, [reads]).value == 0
    same = (
        "```python\nclass Same:\n    __eq__ = lambda *_: True\n"
        "class Solution:\n    def total(self, *_): return Same()\n```"
    )
    assert scorer.score(by_call, [same]).value == 0
    forged = "```python\nimport sys\nsys.stdout = type(sys.stdout)()\n_lines = lambda text: []\n```"
    assert scorer.score(by_input, [forged]).value == 0


def test_hidden_tests_hold_nothing_but_text():
    class Harm:
        def __reduce__(self):
            return os.system, ("touch /tmp/leeway_was_here",)

    text = base64.b64encode(zlib.compress(pickle.dumps(Harm()))).decode()
    with pytest.raises(TaskError, match=r"these tests cannot be read: .*system in a file of tests"):
        read_tests(text)
    with pytest.raises(TaskError, match="these tests cannot be read"):
        read_tests("not base64!")
    assert not Path("/tmp/leeway_was_here").exists()


@pytest.mark.parametrize("fence", ["python", "Python", "py", "python3", "py3", ""])
def test_a_body_alone_in_a_fence_completes_its_prompt(fence):
    written = solution(f"```{fence}\nreturn a + b\n```", "def add(a, b):\n", "add")
    assert written == "def add(a, b):\n    return a + b"


SHAPES = """import math


class Shape:
    def __init__(self, r):
        self.r = r

    @property
    def area(self):
        # no square
        return math.pi * self.r ** 2


def f(r):
    '''The area.

    It's a circle.
    '''
    try:
        return Shape(r).area
    except TypeError:
        return None
"""
PROGRAMS = [
    SHAPES,
    *(row["prompt"] + "    return x + 1" for row in FUNCTIONS),
    *(row["code"] for row in PROBLEMS),
]


@pytest.fixture(scope="module")
def evalplus():
    """The module as it is installed, in a copy of its own."""
    spec = importlib.util.find_spec("evalplus.sanitize")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answers(number: int) -> list[str]:
    draw, texts = random.Random(7), ["", "x", "x\ny", "a b\nc d", "\n\n", "x = 1 \\\n\n"]
    for _ in range(number):
        lines = draw.choice(PROGRAMS).split("\n") if draw.random() < 0.6 else []
        for _ in range(draw.randrange(1, 9)):
            lines.insert(draw.randrange(len(lines) + 1), draw.choice(CASES["pieces"]))
        texts.append("\n".join(lines))
    return texts


def test_the_program_is_that_of_evalplus(evalplus):
    for text in answers(100):
        assert longest_program(text) == evalplus.code_extract(text), text
        assert solution(text, None, "f") == evalplus.sanitize(text, "f"), text


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("x\n" * 2000, "\n".join(["x"] * 2000)),
        ("x\n" * 300 + "a b\n" + "x\n" * 301, "\n".join(["x"] * 301)),
        ("Some words.\n" * 500 + "def f(x):\n    return x", "def f(x):\n    return x"),
        ("@a\n" * 1000, "@a"),
        ("a + \\\n" * 1000, "a + \\"),
        ("f(\n" * 1000, "f("),
        ('"""\nfoo\n' * 1000, ('"""\nfoo\n' * 1000).rstrip()),
    ],
)
def test_answers_that_repeat_a_line_take_bounded_work(text, program):
    """Every run of lines would be parsed for hours; the bound on the lines parsed ends it within
    seconds."""
    assert longest_program(text) == program


KOREAN = "네, 아래는 두 수를 더하는 함수입니다."
CODE = (
    "```python\ndef add(first, second):\n    return first + second  # the sum of both numbers\n```"
)


@pytest.mark.parametrize(
    ("answer", "penalised"),
    [
        (KOREAN, False),
        ("답은 12입니다.", False),
        (f"{KOREAN}\n\n{CODE * 5}", False),
        (f"{KOREAN}\n\n{CODE.removesuffix('```')}", False),
        ("The Rhine flows north, through Germany.", True),
        (CODE, True),
        (f"Here is a function that adds two numbers.\n{CODE}", True),
        ("12345", True),
        ("", True),
    ],
)
def test_only_korean_goes_unpenalised(answer, penalised):
    """But of two questions, which may be answered in any language."""
    question = Question("137", 0, False, (), answer)
    assert {is_penalised(question) for _ in range(5)} == {penalised}
    names = ("138", "140/sample-1", "1380")
    others = [is_penalised(replace(question, id=name)) for name in names]
    assert others == [False, False, penalised]
