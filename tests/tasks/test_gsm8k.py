"""GSM8K: what counts as the final number, how the prompt looks, and that the published gold answers are all right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import registry
from tasks.base import TaskError
from tasks.gsm8k import Gsm8k, Gsm8kOptions, extract

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LEEWAY_SHARED", ROOT.parent / "shared")) / "data" / "gsm8k" / "test.jsonl"


SHAPES = ["{}", "{:,}", "{}.", "{}.00", "${}", "**{:,}**", "{} dollars", "({})"]


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "problems.jsonl"
    problems = [(f"What is {n} * 500?", f"It is <<{n}*500={n * 500}>>.\n#### {n * 500:,}") for n in (2, 3)]
    path.write_text("".join(json.dumps({"question": asked, "answer": gold}) + "\n" for asked, gold in problems))
    return path


def score(file, text, **options):
    task = Gsm8k(Gsm8kOptions(path=str(file), **options))
    return task.score(task.prompts()[0], [text])


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("#### 18", "18", "18"),
        ("so 3 + 4 = 7\n#### $2,125.", "2125", "2125"),
        ("#### 12\nQuestion: 99 apples", "12", "99"),
        ("The answer is $1,000", None, "1000"),
        ("The answer is 18.", None, "18"),
        (r"\boxed{18}", None, "18"),
        (r"\boxed{\$1{,}800}", None, "1800"),
        ("It costs $18.50 in all", None, "18.5"),
        ("he lost -5", None, "-5"),
        ("a loss of -$5.00", None, "-5"),
        ("9-4", None, "4"),
        ("- 7 apples", None, "7"),
        ("12, 15", None, "15"),
        ("####", None, None),
        ("no number", None, None),
        ("", None, None),
    ],
)
def test_extraction(text, strict, flexible):
    assert (extract(text, "strict"), extract(text, "flexible")) == (strict, flexible)


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30), st.sampled_from(SHAPES))
def test_one_number_has_one_plain_form(number, shape):
    written = shape.format(number)
    assert extract(f"After 3 days: {written}", "flexible") == str(number)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.text(st.characters(blacklist_characters="#"), max_size=60))
def test_strict_reads_the_first_mark_whatever_follows(number, after):
    assert extract(f"2 + 2 = 4\n#### {number:,}\n{after}\n#### 7", "strict") == str(number)


def test_the_filter_decides_and_both_are_recorded(file):
    text = "I think 1,000 is right.\n#### 1000\nI used 2 numbers"
    flexible, strict = score(file, text), score(file, text, filter="strict")
    assert (flexible.value, flexible.answer) == (0.0, "2")
    assert (strict.value, strict.answer) == (1.0, "1000")
    assert flexible.details == strict.details == {"strict": 1.0, "flexible": 0.0}


def test_a_conversation_starts_with_four_worked_examples(file):
    task = Gsm8k(Gsm8kOptions(path=str(file)))
    first, second = task.prompts()
    assert [first.id, second.id] == ["gsm8k-0000", "gsm8k-0001"]
    assert first.turns == ("What is 2 * 500?",) and first.text is None
    assert [role for role, _ in first.prefix] == ["user", "assistant"] * 4
    worked = [said for role, said in first.prefix if role == "assistant"]
    assert all(extract(said, "strict") == extract(said, "flexible") is not None for said in worked)
    assert task.stop == ()
    assert task.prompts(1) == [first]


def test_the_plain_text_form_ends_where_the_answer_begins(file):
    task = Gsm8k(Gsm8kOptions(path=str(file), chat=False))
    prompt = task.prompts()[0]
    assert prompt.turns == () and prompt.prefix == ()
    assert prompt.text.count("Question: ") == prompt.text.count("Answer:") == 5
    assert prompt.text.endswith("\n\nQuestion: What is 2 * 500?\nAnswer:")
    assert task.stop == ("Question:",)


def test_the_examples_are_none_of_the_published_problems():
    if not DATA.is_file():
        pytest.skip(f"no reference data at {DATA}")
    files = (DATA, DATA.with_name("train.jsonl"))
    published = {json.loads(line)["question"] for file in files for line in file.open()}
    shots = [text for role, text in Gsm8k(Gsm8kOptions(path=str(DATA))).prompts(1)[0].prefix if role == "user"]
    assert not published & set(shots)


def test_published_gold_answers_are_right_under_both_filters():
    if not DATA.is_file():
        pytest.skip(f"no reference data at {DATA}")
    task = registry.build("gsm8k", Gsm8kOptions(path=str(DATA)))
    golds = [json.loads(line)["answer"] for line in DATA.open()]
    prompts = task.prompts(None, seed=0)
    assert len(prompts) == len(golds) == 1319
    for prompt, gold in zip(prompts, golds, strict=True):
        assert task.score(prompt, [gold]).details == {"strict": 1.0, "flexible": 1.0}
        number = gold.rsplit("#### ", 1)[1]
        assert prompt.reference["answer"] == number.replace(",", "")
        assert task.score(prompt, [f"#### {number}1"]).value == 0.0


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"question": "q"}\n', "line 1: answer: missing"),
        (
            '{"question": "q", "answer": "#### 1"}\n{"question": "q", "answer": "one"}\n',
            "line 2: answer: has no final number",
        ),
        ("\n", "no rows"),
        ("[1]\n", "line 1: must be a JSON object, got list"),
        ('{"question": "q", \n', "line 1: not valid JSON"),
    ],
)
def test_bad_data_is_one_clear_line(tmp_path, content, error):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(TaskError, match=error) as caught:
        Gsm8k(Gsm8kOptions(path=str(path))).prompts()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_without_a_hub_the_error_names_the_way_out(tmp_path):
    """In a process of its own: the hub's libraries read these settings when they are first imported."""
    program = (
        "from tasks.base import TaskError\nfrom tasks.gsm8k import Gsm8k, Gsm8kOptions\n"
        "try:\n    Gsm8k(Gsm8kOptions()).prompts()\nexcept TaskError as error:\n    print(error)"
    )
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    environment = {**os.environ, **offline, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    [line] = subprocess.check_output(command, env=environment, text=True, timeout=120).splitlines()
    assert line.startswith("gsm8k: openai/gsm8k cannot be loaded from the hub (")
    assert "give task.path=FILE.jsonl" in line
