"""A judge behind a server that dies half-way; its key; and what replies mean."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from bench.config.errors import ConfigError
from bench.run.judging import JudgeError, JudgeVerdict, ask, format_judge_summary, judge_summary
from tasks.base import Prompt, TaskError
from tasks.judge_prompts import JudgePrompts, Question
from tasks.sources import DATA
from tests.helpers.judging import judge
from tests.helpers.rehearsal.rows import QUESTIONS, write_rows
from tests.helpers.summaries import written

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("LEEWAY_SHARED", ROOT.parent / "shared")) / "data"
TEMPLATES = [
    {
        "name": "single-v1",
        "system_prompt": "Judge.",
        "prompt_template": "Q {question} A {answer} [[rating]]",
    },
    {
        "name": "single-math-v1",
        "system_prompt": "Judge.",
        "prompt_template": "Q {question} R {ref_answer_1} A {answer}",
    },
    {
        "name": "single-v1-multi-turn",
        "system_prompt": "Judge.",
        "prompt_template": "Q {question_1} A {answer_1} Q {question_2} A {answer_2}",
    },
    {
        "name": "single-math-v1-multi-turn",
        "system_prompt": "Judge.",
        "prompt_template": (
            "R {ref_answer_1} {ref_answer_2} Q {question_1} A {answer_1} Q {question_2} A "
            "{answer_2}"
        ),
    },
]
ALPACA = (
    "<|im_start|>system\nRank.\n<|im_end|>\n<|im_start|>user\n{instruction}: m {output_1}, M "
    "{output_2}\n<|im_end|>\n"
)


@pytest.fixture
def templates(tmp_path) -> str:
    return str(write_rows(tmp_path, "judge_prompts", TEMPLATES))


@pytest.mark.slow
def test_a_server_that_dies_half_way_is_resumed_and_nothing_is_judged_twice(
    command, server, templates, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    references = [
        {"question_id": q["question_id"], "choices": [{"turns": ["Rhine.", "Germany."]}]}
        for q in QUESTIONS
    ]
    words = [
        f"task.path={write_rows(tmp_path, 'mt_bench')}",
        "task=mt_bench",
        "task.system=null",
        "method=sps",
        "n=4",
        f"judge.base_url={server.url}",
        "judge.model=own",
        f"judge.prompts={templates}",
        "judge.retries=1",
        "judge.wait_s=0.1",
        f"judge.references={write_rows(tmp_path, 'gpt4', references)}",
    ]
    server.start(die_after=5)
    first = command(*words)
    file = first.cell.path / "verdicts.jsonl"
    file.write_text(file.read_text() + '{"key": "b", "rep')  # as if killed within a line
    assert first.status == 1 and f"judge.base_url={server.url}: no reply from own" in first.err
    assert written(first.cell).judge is None and len(server.asked()) == 5
    server.start()
    second = command(*words, "summary=json")
    assert second.status == 0, second.err
    asked = server.asked()
    assert len(asked) == 8 and len({json.dumps(one["messages"]) for one in asked}) == 8
    assert {one["key"] for one in asked} == {"Bearer s3cret"}
    assert {one["path"] for one in asked} == {"/v1/chat/completions"}
    found = written(second.cell).judge
    assert found.model_dump(mode="json", exclude_unset=True) == second.last_line["judge"]
    assert (found.model, found.mode, found.n, found.replies, found.unread) == (
        "own",
        "single",
        4,
        8,
        0,
    )
    assert found.score == pytest.approx(sum(found.turns.values()) / 2)
    assert "s3cret" not in "".join(path.read_text() for path in second.cell.path.iterdir())
    third = command(*words)
    assert third.status == 0 and len(server.asked()) == 8 and written(third.cell).judge == found
    assert "score" in third.out and "4 prompts, turn 1" in third.out
    file.write_text("[]\n")
    assert "line 1 is not a verdict" in command(*words).err


def test_no_endpoint_is_one_line_and_a_key_is_sent(server, monkeypatch):
    body = judge().asked((("user", "hello"),))
    with pytest.raises(
        JudgeError, match=r"127.0.0.1:1/v1: no reply from own \(.*refused.*re-running .* resumes"
    ):
        ask(judge(), body)
    server.start()
    assert "[[" in ask(judge(base_url=server.url), body)
    monkeypatch.setenv("JUDGE_KEY", " s3cret\n")
    ask(judge(base_url=server.url), body)
    assert [one["key"] for one in server.asked()] == [None, "Bearer s3cret"], (
        "without its line break"
    )


@pytest.mark.parametrize(
    "said",
    [
        '{"error": "loading"}',
        "<p>sign in</p>",
        '{"choices": [{"message": null}]}',
        "7",
        '{"choices": [{"message": {"content": 7}}]}',
        '{"choices": [{"message": {"content": ["[[7]]"]}}]}',
    ],
)
def test_a_reply_that_is_no_completion_is_shown(server, said):
    server.start()
    server.reply = lambda request: said.encode()
    with pytest.raises(
        JudgeError, match=re.escape(f"no reply from own (not a chat completion: {said});")
    ):
        ask(judge(base_url=server.url), judge().asked((("user", "hello"),)))


def test_grades_and_choices(templates, tmp_path):
    prompts = JudgePrompts(templates)
    assert [
        prompts.rating(text)
        for text in ("Rating: [[7]]", "[[8.5]] then [[2]]", "[3]", "ten", "[[11]]", "[[0]]")
    ] == [7.0, 8.5, 3.0, None, None, 0.0]
    assert [
        prompts.rating(text)
        for text in (
            "arr[0] is right. Rating: [[9]]",
            "refs [1] ... [[8]]",
            "[[7.]]",
            "[2] of [3]",
            "[4] but [[11]]",
        )
    ] == [9.0, 8.0, 7.0, 2.0, None]
    path = tmp_path / "alpaca.txt"
    path.write_text(ALPACA)
    alpaca = JudgePrompts(str(path))
    assert [alpaca.choice(letter, swapped) for letter in "mM" for swapped in (False, True)] == [
        1.0,
        0.0,
        0.0,
        1.0,
    ]
    said = [
        " m\n",
        "M. I'm sure.",
        "m. M is worse.",
        "'M'",
        "I'm sure it is M",
        "(m)",
        "I’m unsure",
        "Mm",
        "",
    ]
    assert [alpaca.choice(reply, False) for reply in said] == [
        1.0,
        0.0,
        1.0,
        0.0,
        0.0,
        1.0,
        None,
        None,
        None,
    ]
    asked = alpaca.pairwise(Prompt("a", turns=("Name a bird",)), ["A {output_2} crow"], ["A tit"])
    assert [one.messages for one in asked] == [
        (("system", "Rank."), ("user", "Name a bird: m A {output_2} crow, M A tit")),
        (("system", "Rank."), ("user", "Name a bird: m A tit, M A {output_2} crow")),
    ]
    with pytest.raises(
        TaskError, match=r"grades an answer, and this task's are compared; give AlpacaEval's"
    ):
        prompts.pairwise(Prompt("a", turns=("Name a bird",)), ["A crow"], ["A tit"])
    with pytest.raises(
        TaskError, match=r"compares two answers, and this task's are graded; give FastChat's"
    ):
        alpaca.single(Prompt("a", turns=("Name a bird",)), ["A crow"], None)


def test_questions_show_what_they_must(templates):
    prompts = JudgePrompts(templates)
    plain = Prompt("1", turns=("Q1", "Q2"), reference={"category": "writing"})
    checked = Prompt("2", turns=("Q1", "Q2"), reference={"category": "math"})
    assert [
        one.messages[1][1] for one in prompts.single(plain, ["a1", "a2 {question_1}"], None)
    ] == ["Q Q1 A a1 [[rating]]", "Q Q1 A a1 Q Q2 A a2 {question_1}"]
    assert [one.messages[1][1] for one in prompts.single(checked, ["a1", "a2"], ["r1", "r2"])] == [
        "Q Q1 R r1 A a1",
        "R r1 r2 Q Q1 A a1 Q Q2 A a2",
    ]
    with pytest.raises(
        TaskError,
        match=r"question 2 \(math\) is judged against a reference answer and there is none",
    ):
        prompts.single(checked, ["a1", "a2"], None)
    with pytest.raises(TaskError, match=r"cannot be read .*give a local copy"):
        JudgePrompts("/nowhere.jsonl")


@pytest.mark.parametrize(
    "name", ["mt_bench/judge_prompts.jsonl", "komt_bench/judge_prompts_ko.jsonl"]
)
def test_published_prompts_have_no_gap_left(name):
    path = DATA / name if (DATA / name).is_file() else SHARED / name
    if not path.is_file():
        pytest.skip(f"no reference data at {path}")
    prompts = JudgePrompts(str(path))
    for category in ("writing", "math"):
        prompt = Prompt("1", turns=("Q1?", "Q2?"), reference={"category": category})
        for question in prompts.single(prompt, ["one", "two"], ["r1", "r2"]):
            text = question.messages[1][1]
            assert "{" not in text.replace("{{", "") and ("two" if question.turn else "one") in text
            assert ("r1" in text) == (category == "math")


def test_an_order_that_decides_is_a_tie():
    def game(name, straight, swapped):
        return [
            JudgeVerdict(Question(name, 0, False, ()), straight),
            JudgeVerdict(Question(name, 0, True, ()), swapped),
        ]

    found = judge_summary(
        [
            *game("won", 1.0, 1.0),
            *game("lost", 0.0, 0.0),
            *game("first place", 1.0, 0.0),
            *game("nearly", 1.0, 0.5),
            *game("mute", None, None),
        ],
        "own",
        "pairwise",
    )
    assert (found.win_rate, found.n, found.left_out, found.unread) == (0.5, 4, 1, 2)
    assert format_judge_summary(found).startswith("win rate 50.0% [")
    found = judge_summary(
        [*game("half read", 1.0, None), *game("half", None, 1.0), *game("lost", 0.0, 0.0)],
        "own",
        "pairwise",
    )
    assert (found.win_rate, found.n, found.left_out, found.unread) == (0.0, 1, 2, 2)
    assert format_judge_summary(found) == (
        "win rate 0.0%, judged by own: 1 prompt, 0.0% won where its answer stood first, 0.0% "
        "where second, 2 left out, without a verdict in both orders, 2 of 6 replies without a "
        "verdict"
    )
    found = judge_summary(game("half read", 1.0, None), "own", "pairwise")
    assert (found.win_rate, found.ci95, found.n, found.left_out) == (None, None, 0, 1)
    assert format_judge_summary(found).startswith(
        "win rate –, judged by own: 0 prompts, 1 left out"
    )


def test_an_answer_that_is_not_korean_counts_by_its_root():
    def graded(turn, value, penalised):
        return JudgeVerdict(Question("1", turn, False, ()), value, penalised)

    found = judge_summary(
        [graded(0, 9.0, True), graded(1, 4.0, False), graded(1, None, True)], "own", "single"
    )
    assert (found.score, found.turns) == (3.5, {"turn_1": 3.0, "turn_2": 4.0})
    assert (found.unpenalised, found.penalised, found.unread) == (6.5, 1, 1)
    assert "1 of 3 grades penalised as not Korean (6.50 without)" in format_judge_summary(found)
    assert judge_summary([graded(0, 9.0, None)], "own", "single").unpenalised is None


def test_grades_in_komt_bench_depend_on_the_language(command, server, templates, tmp_path):
    server.start()
    rows = [
        {
            "question_id": number,
            "category": "writing",
            "turns": [f"Name {number} rivers.", "Name their countries."],
        }
        for number in (137, 138, 140)
    ]
    words = [
        f"task.path={write_rows(tmp_path, 'komt_bench', rows)}",
        "task=komt_bench",
        "method=sps",
        f"judge.base_url={server.url}",
        "judge.model=own",
        f"judge.prompts={templates}",
    ]
    result = command(*words)
    assert result.status == 0, result.err
    found = written(result.cell).judge
    replies = [
        json.loads(line) for line in (result.cell.path / "verdicts.jsonl").read_text().splitlines()
    ]
    grades = [(one["id"], float(re.search(r"\[\[(\d+)", one["reply"]).group(1))) for one in replies]
    counted = [grade**0.5 if name == "137" else grade for name, grade in grades]
    assert (found.penalised, found.score) == (2, pytest.approx(sum(counted) / 6))
    assert found.unpenalised == pytest.approx(sum(grade for _, grade in grades) / 6)
    assert command(*words, "judge.language_penalty=false").status == 0
    plain = written(result.cell).judge
    assert plain.score == pytest.approx(found.unpenalised) and plain.penalised == 0
    assert len(server.asked()) == 6, "nothing was asked again"


def test_the_win_rate_swaps_places(command, server, tmp_path):
    server.start()
    rows = [{"instruction": f"Name {n} birds.", "output": "FIRST"} for n in (2, 3, 4)]
    (tmp_path / "alpaca.txt").write_text(ALPACA)
    words = [
        f"task.path={write_rows(tmp_path, 'alpaca', rows)}",
        "task=alpaca",
        "task.system=null",
        "method=sps",
        f"judge.base_url={server.url}",
        "judge.model=own",
        f"judge.prompts={tmp_path / 'alpaca.txt'}",
    ]
    result = command(*words)
    assert result.status == 0, result.err
    name, found = result.cell.path.name, written(result.cell).judge
    assert (found.mode, found.win_rate, found.n, found.replies) == ("pairwise", 0.0, 3, 6)
    found = written(command(*words, "judge.against=baseline").store.cell(name)).judge
    assert (found.win_rate, found.replies) == (0.5, 6), "greedy answers are the baseline's own"


@pytest.mark.slow
def test_a_report_asks_for_the_grades_that_it_shows(command, server, templates, tmp_path):
    table = {
        "name": "graded",
        "title": "Graded",
        "kind": "table",
        "base": ["n=2", "method=sps"],
        "axes": {
            "Method": [{"label": "SpS"}],
            "Task": [
                {
                    "label": "MT",
                    "overrides": [
                        "task=mt_bench",
                        "task.system=null",
                        f"task.path={write_rows(tmp_path, 'mt_bench')}",
                    ],
                },
                {"label": "mini", "overrides": ["task=mini_gsm"]},
            ],
        },
        "rows": ["Method"],
        "columns": ["Task"],
        "values": ["judge_score", "tau"],
    }
    (tmp_path / "conf" / "report").mkdir(parents=True)
    (tmp_path / "conf" / "report" / "graded.yaml").write_text(json.dumps(table))  # JSON is YAML
    words, flags = ["report=graded", "n=2", "timed=0"], ["-cd", str(tmp_path / "conf")]
    file = tmp_path / "out" / "report" / "graded.md"
    assert command(*words, flags=flags).status == 0
    assert "needs judge.base_url" in file.read_text() and file.read_text().count("needs judge") == 1
    references = [
        {"question_id": q["question_id"], "choices": [{"turns": ["Rhine.", "Germany."]}]}
        for q in QUESTIONS
    ]
    judged = [
        *words,
        f"judge.base_url={server.url}",
        "judge.model=own",
        f"judge.prompts={templates}",
        f"judge.references={write_rows(tmp_path, 'gpt4', references)}",
        "judge.retries=0",
    ]
    unreachable = command(*judged, flags=flags)
    assert (
        unreachable.status == 1
        and "no reply from own" in unreachable.err
        and "not judged" in file.read_text()
    )
    server.start()
    assert command(*judged, flags=flags).status == 0
    text, asked = file.read_text(), len(server.asked())
    assert asked == 4 and "judged by own: 2 prompts" in text and "needs judge" not in text
    assert command(*judged, flags=flags).status == 0 and len(server.asked()) == asked


SECRET = 's3cret-"0001\\key'


@pytest.mark.parametrize("key", ["s3cr\u00e9t", "s3c\nret", "s3c\x7fret", "\uc5f4\uc1e0"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(command, monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    result = command(
        "judge.base_url=http://127.0.0.1:1/v1", "judge.model=own", "judge.key_env=JUDGE_KEY"
    )
    assert (result.status, result.err) == (
        2,
        "error: judge.key_env=JUDGE_KEY: the key in this environment variable has a character "
        "that is not printable ASCII; set it again\n",
    )
    with pytest.raises(ConfigError, match="is not printable ASCII"):
        ask(judge(), {})
    judge(base_url=None).check()  # nothing is judged


@pytest.mark.parametrize(
    ("status", "line"), [(200, "not a chat completion"), (401, "HTTP 401"), (302, "HTTP 302")]
)
def test_a_server_that_echoes_the_key_does_not_show_it(server, monkeypatch, status, line):
    """Nor does the key follow where it redirects to."""
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    seen = []

    def echo(request):
        seen.append(sent := request["key"])
        return f"{'x' * 150} you sent {sent} {json.dumps(sent)}".encode()

    server.start()
    server.status, server.reply = status, echo
    with pytest.raises(JudgeError, match=rf"{line}.*you sent Bearer \(hidden\)") as raised:
        ask(judge(base_url=server.url, retries=1), {"messages": []})
    assert seen == [f"Bearer {SECRET}"] * (2 if status == 200 else 1), (
        "a refused request is not sent again"
    )
    assert "s3cret" not in str(raised.value) and "0001" not in str(raised.value)
