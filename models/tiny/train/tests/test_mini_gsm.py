"""mini_gsm: the gold answer is right, follows from the text alone, and only the right number scores."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny.train.texts import gsm, gsm_phrases
from models.tiny.train.texts.words import NUMBERS
from tasks.mini import scores

seeds = st.integers(0, 2**32)
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def problem(seed: int):
    example = gsm.draw(random.Random(seed))
    return example.turns[0], example.answers[0], example.reference


def canonical(sentence: str) -> str:
    """The sentence in the one wording that `solve` reads."""
    sentence = sentence.replace(" owns ", " has ")
    sentence = re.sub(r" does$", "", sentence)
    sentence = re.sub(r"twice as", "2 times as", sentence)
    sentence = re.sub(r"(\w+) times", lambda m: f"{NUMBERS.index(m[1]) if m[1] in NUMBERS else m[1]} times", sentence)
    sentence = re.sub(r"^(\w+) has as many (\w+) as (\w+) and (\d+) more$", r"\1 has \4 more \2 than \3", sentence)
    return re.sub(r"^(\w+) gets (\d+) (\w+) from (\w+)$", r"\4 gives \2 \3 to \1", sentence)


def solve(question: str) -> int:
    """A reader that shares no code with the generator: it knows only the text of the question."""
    *story, asked = re.split(r"(?<=[.?]) ", question)
    have: dict[tuple[str, str], int] = {}
    relations, events = [], []
    for sentence in (line for line in story if line not in gsm_phrases.FRAMES):
        when = re.match("|".join(f"{word} " for word in gsm_phrases.THEN), sentence)
        text = canonical(sentence[when.end() if when else 0 :].rstrip("."))
        if when:
            events.append(text)
        elif known := re.fullmatch(r"(\w+) has (\d+) (\w+)", text):
            assert (known[1], known[3]) not in have
            have[known[1], known[3]] = int(known[2])
        else:
            relations.append(text)
    for _ in range(len(relations)):
        for text in relations:
            add_cross_cell_metrics(have, text)
    for text in events:
        happen(have, text)
    return print_outcome(have, asked)


def add_cross_cell_metrics(have: dict, text: str) -> None:
    found = re.fullmatch(r"(\w+) has (?:(\d+) (more|fewer|times as many)|(half) as many) (\w+) (?:as|than) (\w+)", text)
    assert found, text
    owner, number, kind, half, thing, other = found.groups()
    source = (other, thing) if other[0].isupper() else (owner, other)
    if source in have:
        base, k = have[source], int(number or 2)
        values = {"more": base + k, "fewer": base - k, "times as many": base * k, "half": base // 2}
        assert have.setdefault((owner, thing), values[half or kind]) == values[half or kind]


def happen(have: dict, text: str) -> None:
    found = re.fullmatch(r"(\w+) (\w+) (\d+) (?:more |new )?(\w+)(?: to (\w+)| away)?", text)
    assert found, text
    owner, verb, number, thing, receiver = found.groups()
    sign = 1 if verb in ("buys", "finds", "gets") else -1
    assert sign == 1 or verb in ("loses", "sells", "throws", "gives", "hands")
    have[owner, thing] += sign * int(number)
    if receiver:
        have[receiver, thing] += int(number)


def print_outcome(have: dict, asked: str) -> int:
    owners = re.findall(r"\b(?!How|What|Find)[A-Z]\w+", asked)
    (thing,) = {thing for _, thing in have} & set(re.findall(r"\w+", asked))
    values = [have[owner, thing] for owner in owners]
    if "more" in asked:
        return values[0] - values[1]
    return values[1] - values[0] if "fewer" in asked else sum(values)


@given(seeds)
@settings(max_examples=300, deadline=None)
def test_the_text_alone_leads_to_the_gold_answer(seed):
    question, answer, reference = problem(seed)
    assert solve(question) == int(reference["answer"])
    assert answer.endswith(f"\n#### {reference['answer']}")
    assert scores.gsm(reference, [answer]).value == 1


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_every_worked_equation_is_right_and_its_operands_are_known(seed):
    question, answer, reference = problem(seed)
    known = {int(number) for number in re.findall(r"\d+", question)}
    known |= {NUMBERS.index(word) for word in question.split() if word in NUMBERS}
    known |= {2}  # "twice", "half"
    equations = EQUATION.findall(answer)
    assert len(equations) in gsm.STEPS
    for left, symbol, right, result in equations:
        a, b, c = int(left), int(right), int(result)
        assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[symbol] == c
        assert {a, b} <= known
        assert 0 < c <= gsm.LARGEST_TOTAL and (symbol != "*" or b < 10)
        known.add(c)
    assert re.findall(r"\d+", answer.split("\n")[0])[-1] == reference["answer"]


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_answers_quote_every_fact_and_in_an_order_that_works(seed):
    question, answer, _ = problem(seed)
    *story, _ = re.split(r"(?<=[.?]) ", question)
    when = re.compile("|".join(f"^{word} " for word in gsm_phrases.THEN))
    facts = [when.sub("", sentence) for sentence in story if sentence not in gsm_phrases.FRAMES]
    assert all(f" {fact}" in f" {answer}" for fact in facts)
    stated = set()
    for sentence in re.split(r"(?<=\.) ", answer):
        if base := re.search(r"(?:than|as) ([A-Z]\w+)(?: does)?\.$", sentence):
            assert base[1] in stated
        stated.add(sentence.split()[0])


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_questions_are_plain(seed):
    question, answer, _ = problem(seed)
    assert not re.search(r"-\d|\d[./]\d", question)
    assert len(question.split()) in gsm.QUESTION_WORDS
    assert len(answer.split()) in gsm.ANSWER_WORDS
    assert "  " not in question + answer and "{" not in question + answer
    assert not re.search(r"\b1 \w+s\b", question)
    assert all(sentence[0].isupper() for sentence in re.split(r"(?<=[.?])\s", question + " " + answer.split("\n")[0]))


@given(seeds, st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_wrong_answers_score_zero(seed, off):
    _, answer, reference = problem(seed)
    right = reference["answer"]
    steps = answer.split("\n")[0]
    assert scores.gsm(reference, [f"{steps}\n#### {int(right) + off}"]).value == 0
    assert scores.gsm(reference, [f"{steps}\n#### -{right}"]).value == 0
    unmarked = scores.gsm(reference, [f"{steps} The answer is {right}."])
    assert (unmarked.value, unmarked.answer, unmarked.details["flexible"]) == (0, None, 1)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 1,000", "1000"),
        ("#### 18.", "18"),
        ("#### $18", "18"),
        ("####18.0", "18"),
        ("#### -$3", "-3"),
        ("#### 18.5", "18.5"),
        ("#### 7 #### 8", "8"),
        ("18", None),
        ("#### none", None),
        ("", None),
    ],
)
def test_the_marked_number_is_read(text, answer):
    score = scores.gsm({"answer": answer or "18"}, [text])
    assert score.answer == answer
    assert score.value == (answer is not None)


def test_a_share_of_each_depth_and_of_each_kind_of_question():
    rng = random.Random(0)
    examples = [gsm.draw(rng) for _ in range(2000)]
    for steps, share in gsm.STEPS.items():
        found = sum(len(EQUATION.findall(example.answers[0])) == steps for example in examples) / len(examples)
        assert found == pytest.approx(share, abs=0.05)
    for word in ("together", "total", "more", "fewer", "number"):
        asked = [re.split(r"(?<=[.?]) ", example.turns[0])[-1] for example in examples]
        assert sum(word in sentence for sentence in asked) > 50
