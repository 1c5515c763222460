"""Every benchmark YAML loads rows of its published format; every fault of a file is one line. Of
rows that come with the project the prompts are in tests/bench/digests.txt."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bench.config.compose import composer
from bench.config.section import parse
from tasks import registry
from tasks.base import TaskError
from tasks.sources import DATA
from tasks.templates import TemplateFault, render
from tests.helpers.rehearsal.rows import FUNCTIONS, QUESTIONS, ROWS, WORD_PROBLEMS, write_rows
from tests.tasks.conftest import CASES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hydra():
    with composer() as composing:
        yield composing


@pytest.fixture
def load(hydra):
    """The task that `task=NAME task.KEY=VALUE …` names."""

    def build(name, **options):
        given = [
            f"task.{key.replace('__', '.')}={json.dumps(value, default=str)}"
            for key, value in options.items()
        ]
        if "path" in options and "ids" not in options:  # the lists are of the published rows
            given.append("task.ids=null")
        config = hydra.point([f"task={name}", *given]).config
        chosen = parse(registry.options, config, "task", registry.names(config["task"]))
        return registry.build(chosen.name, chosen.options)

    return build


@pytest.fixture
def read(load, tmp_path):
    """The task with the rows of `rows.py`."""
    return lambda name, **options: load(name, path=write_rows(tmp_path, name), **options)


def yamls() -> set[str]:
    """The tasks whose YAML builds on conf/task/dataset.yaml, or on one that does; one has the rows
    of another."""
    return {
        path.stem
        for path in (ROOT / "conf" / "task").glob("*.yaml")
        if "defaults" in yaml.safe_load(path.read_text())
    } - {"ifeval_loose"}


def test_every_yaml_is_tried():
    assert set(ROWS) == yamls()


@pytest.mark.parametrize("name", sorted(ROWS))
def test_rows_of_the_published_format_become_prompts(name, read):
    task = read(name)
    prompts = task.prompts(5)
    assert len({prompt.group or prompt.id for prompt in prompts}) == 5 and task.prompts() == prompts
    for prompt in prompts:
        text = prompt.text or prompt.turns[0]
        assert text.strip() and "{{" not in text and "{%" not in text
        json.dumps(dict(prompt.reference))
    each = len(prompts) // 5  # samples of a row
    assert read(name).prompts(2) == prompts[: 2 * each]


def test_boxed_answers_are_compared_by_the_function_of_lm_eval(read):
    task = read("aime24")
    prompt = task.prompts(1)[0]
    assert (prompt.group, prompt.reference["target"]) == ("2024-I-1", "2")
    texts = (r"so $x$ is \boxed{2}.", r"\boxed{02}", r"\boxed{3}", "no box")
    assert [task.score(prompt, [text]).value for text in texts] == [1, 0, 0, 0]


def test_choices_are_shuffled_by_the_question(read):
    task = read("gpqa_diamond")
    prompts = task.prompts()[::6]
    for n, prompt in enumerate(prompts):
        right = prompt.reference["target"]
        assert f"{right} {n + 1}\n" in prompt.turns[0], "the letter before the correct answer"
        scores = {
            letter: task.score(prompt, [f"(A) or (B)? The answer is {letter}"]).value
            for letter in ("(A)", "(B)", "(C)", "(D)")
        }
        assert [letter for letter, score in scores.items() if score] == [right]
    assert len({prompt.reference["target"] for prompt in prompts}) > 1


def test_conversations_begin_in_english(read):
    """Of OASST1 the first message of each tree; a sample of them is drawn uniformly, by the
    seed."""
    task = read("oasst1")
    names = [prompt.id for prompt in task.prompts()]
    assert names == ["m0", "m1", "m2", "m3", "m4"]
    drawn = [tuple(p.id for p in task.prompts_of("calibration", 2, seed)) for seed in range(40)]
    assert len(set(drawn)) > 10 and set().union(*drawn) == set(names)
    assert tuple(p.id for p in task.prompts_of("calibration", 2, 3)) == drawn[3]
    assert len(task.prompts_of("calibration", 99)) == 5


def test_every_shipped_file_is_attributed():
    files = {str(path.relative_to(DATA)) for path in DATA.rglob("*") if path.is_file()}
    text = (DATA / "ATTRIBUTION.md").read_text()
    assert len(files) > 12
    assert {name for name in files - {"ATTRIBUTION.md"} if f"`{name}`" not in text} == set()


def test_shipped_questions_have_their_reference_answers(load):
    """To each question whose category is judged beside one, both turns."""
    from tasks import dataset
    from tasks.judge_prompts import NEED_REFERENCE, SOURCES, JudgePrompts, shipped_references

    task, prompts = load("mt_bench"), JudgePrompts(SOURCES["mt_bench"])
    given = dataset.answers(shipped_references(task.options.path), "references")
    for prompt in task.prompts():
        assert (prompt.id in given) == (prompt.reference["category"] in NEED_REFERENCE), prompt.id
        assert len(prompts.single(prompt, ("one", "two"), given.get(prompt.id))) == 2
    assert shipped_references("other.jsonl") is None


def test_templates_are_those_of_the_papers(read):
    """Of tasks whose rows are not shipped; prompts of the others are in tests/bench/digests.txt."""

    def first(name):
        return read(name).prompts(1)[0]

    systems = {first(f"{name}_eagle").system for name in ("gsm8k", "alpaca", "cnn_dm")}
    assert len(systems) == 1 and "\n\nIf a quest" in systems.pop()
    assert first("mmlu").turns == ("What is 0 + 1?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:",)
    options = "A. 1, B. 2, C. 3, D. 4, E. 5, F. 6, G. 7, H. 8, I. 9"
    assert first("mmlu_dropmatch").turns == (
        "Q: What is 0 + 1?\n(A) 1 (B) 2 (C) 3 (D) 4\nA: Let's think step by step.",
    )
    assert first("mmlu_pro_arc").turns[0].endswith(f"What is 0 + 1?\nOptions: {options}")
    assert (
        first("mmlu_pro").turns[0].startswith("Question:\nWhat is 0 + 1?\nOptions:\nA. 1\nB. 2\n")
    )


@pytest.mark.parametrize(
    ("template", "complaint"),
    CASES["templates"],
)
def test_a_template_that_gives_no_text_is_a_fault(template, complaint):
    """Templates that reach for files and objects are rows of tests/bench/refusals.txt."""
    row = {"a": 1, "items": [1, [2]]}
    with pytest.raises(TemplateFault, match=complaint):
        render(template, row)
    assert render("{{ a }}", row) == "1", "the next template runs"


def test_examples_stand_in_one_text_where_there_is_no_chat(read):
    task = read("gsm8k", chat=False)
    prompt = task.prompts(1)[0]
    assert prompt.turns == () and prompt.prefix == ()
    assert prompt.text.count("Question: ") == prompt.text.count("Answer:") == 5
    assert prompt.text.endswith(f"\n\nQuestion: {WORD_PROBLEMS[0]['question']}\nAnswer:")
    assert task.stop == ("Question:",)


@pytest.mark.parametrize(("name", "options"), [("csqa_fsd", "ABCDE"), ("mmlu_fsd", "ABCD")])
def test_examples_of_fsd_stand_in_the_question(name, options, read, tmp_path):
    """In the form of the released code: five examples whose answers end as its pattern reads
    them."""
    task = read(name)
    prompt = task.prompts(2)[1]
    [asked] = prompt.turns
    assert prompt.prefix == ()
    assert prompt.system.startswith("You are a helpful and knowledgable assistant")
    examples, question = asked.split("following the examples below:\n\n")[1].split("\n\nQuestion: ")
    assert re.findall(r"Example (\d):\nQuestion: .+\n\nChoices: A\) .+", examples) == list("12345")
    assert re.findall(r"([A-E])\) ", question.split("Choices: ")[1]) == list(options)
    right, wrong = (f"Therefore, the answer is {letter}. " for letter in "BC")
    for text, score in ((f"A is wrong. {right}", 1), (wrong + right, 1), (wrong, 0), ("B", 0)):
        assert task.score(prompt, [text]).value == score, text
    row = {"question": "Up?", "choices": ["a", "b"], "answer": "So."}
    [own] = read(name, shots=write_rows(tmp_path, "own", [row])).prompts(1)
    assert "Example 1:\nQuestion: Up?\n\nChoices: A) a, B) b\n\nAnswer: So." in own.turns[0]


def listed(folder, *lines):
    path = folder / "ids.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_listed_rows_are_asked_in_the_order_of_the_list(read, tmp_path):
    """By the SHA-256 of their texts; lists of ids and of numbers come with EAGLE's tasks."""
    digest = hashlib.sha256(" ".join(FUNCTIONS[4]["prompt"].split()).encode()).hexdigest()
    ids = listed(tmp_path, "# two", digest, "", "HumanEval/1")
    assert [p.id for p in read("humaneval", ids=ids).prompts()] == ["HumanEval/5", "HumanEval/1"]


def test_rows_are_chosen_by_an_expression(read):
    chosen = read("spec_bench", where="category == 'math'").prompts()
    assert [prompt.id for prompt in chosen] == ["82", "83"]


def answers(n: int = len(QUESTIONS)) -> list[dict[str, Any]]:
    """A judge's reference answers to the first questions of MT-bench."""
    ids = [question["question_id"] for question in QUESTIONS[:n]]
    return [
        {"question_id": i, "choices": [{"index": 0, "turns": [f"Answer {i}.", "-"]}]} for i in ids
    ]


def of_rows(key, rows):
    return lambda folder: {key: write_rows(folder, "part", rows)}


def of_list(*lines):
    return lambda folder: {"ids": listed(folder, *lines)}


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        (
            "humaneval",
            of_list("HumanEval/9", "HumanEval/1", "x"),
            "2 of its 3 rows are not in .*, HumanEval/9 is the",
        ),
        ("humaneval", of_list("x", "x"), "a name stands there twice"),
        ("humaneval", of_list(), "lists no row"),
        (
            "mt_bench",
            of_rows("references", answers(2)),
            "part.jsonl: no answer to question 83; give task.references with",
        ),
        (
            "mt_bench",
            of_rows("references", QUESTIONS),
            "part.jsonl, row 1: not an answer; it needs question_id and",
        ),
    ],
)
def test_every_fault_of_what_a_task_is_given_is_one_line(name, given, complaint, read, tmp_path):
    """Others are rows of tests/bench/refusals.txt."""
    history = {"history": "reference"} if name == "mt_bench" else {}
    with pytest.raises(TaskError, match=complaint):
        read(name, **given(tmp_path), **history).prompts()


def test_the_second_turn_follows_the_given_answers(read, tmp_path):
    from bench.run.answer import context

    class Target:
        control_tokens = SimpleNamespace(first=lambda text: None)

        def encode(self, messages, plain, day):
            return [f"{m['role']}: {m['content']}" for m in messages]

    given = write_rows(tmp_path, "answers", answers())
    [own, *_] = read("mt_bench").prompts()
    [fixed, *_] = read("mt_bench", history="reference", references=given).prompts()
    assert (own.history, fixed.history) == ((), ("Answer 81.",))
    assert context(Target(), own, ["Mine."])[2] == "assistant: Mine."
    assert context(Target(), fixed, ["Mine."])[2] == "assistant: Answer 81."
    assert context(Target(), own, []) == context(Target(), fixed, [])


WRITTEN = [
    {"text": text}
    for text in ("2024-01-01", "2024-01-01T00:00:00Z", "12:30", "007", "a\u2028b", " x ")
]


LINES = "".join(json.dumps(row) + "\n" for row in WRITTEN)
MARKED = "\ufeff" + "\r\n".join(json.dumps(row, ensure_ascii=False) for row in WRITTEN)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", LINES),
        ("rows.jsonl", MARKED),
        ("rows.jsonl", json.dumps(WRITTEN)),
        ("rows.json", json.dumps(WRITTEN, indent=1)),
        ("rows.json", LINES),
        ("test.jsonl", LINES),
    ],
)
def test_a_text_is_asked_as_it_is_written(tmp_path, load, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode())
    task = load("dataset", path=tmp_path if name == "test.jsonl" else path, prompt="{{ text }}")
    assert [prompt.turns for prompt in task.prompts()] == [(row["text"],) for row in WRITTEN]


def test_parquet_and_csv_are_read(tmp_path, load):
    """A data set of one's own needs no YAML."""
    import pandas

    rows = pandas.DataFrame({"a": [2, 4], "b": [3, 5]})
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = {"prompt": "{{ a }} + {{ b }} = ?", "target": "{{ a|int + b|int }}"}
    for name in ("rows.parquet", "rows.csv"):
        prompts = load("dataset", path=tmp_path / name, **asked).prompts()
        assert [prompt.turns for prompt in prompts] == [("2 + 3 = ?",), ("4 + 5 = ?",)]
        assert prompts[0].reference == {"target": "5"}
