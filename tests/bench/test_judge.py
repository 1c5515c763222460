"""A judge behind a server that dies half-way; its key; and what replies mean."""

from __future__ import annotations

import json
import re

import pytest

from bench.run.judging import JudgeError, JudgeVerdict, ask, format_judge_summary, judge_summary
from tasks.base import Prompt, TaskError
from tasks.judge_prompts import JudgePrompts, Question
from tasks.sources import DATA
from tests.helpers.judging import judge
from tests.helpers.rehearsal.rows import QUESTIONS, write_rows
from tests.helpers.summaries import written

PUBLISHED = str(DATA / "mt_bench" / "judge_prompts.jsonl")
REFERENCES = [
    {"question_id": question["question_id"], "choices": [{"turns": ["Rhine.", "Germany."]}]}
    for question in QUESTIONS
]
MT_BENCH = "task=mt_bench task.system=null judge.model=own"
ALPACA = (
    "<|im_start|>system\nRank.\n<|im_end|>\n<|im_start|>user\n{instruction}: m {output_1}, M "
    "{output_2}\n<|im_end|>\n"
)


@pytest.mark.slow
def test_a_server_that_dies_half_way_is_resumed_and_nothing_is_judged_twice(
    command, server, tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    words = (
        f"{MT_BENCH} task.path={write_rows(tmp_path, 'mt_bench')} method=sps n=4",
        f"judge.base_url={server.url} judge.retries=1 judge.wait_s=0.1",
        f"judge.references={write_rows(tmp_path, 'gpt4', REFERENCES)}",
    )
    server.start(die_after=5)
    first = command(*words, status=1)
    file = first.cell.path / "verdicts.jsonl"
    file.write_text(file.read_text() + '{"key": "b", "rep')  # as if killed within a line
    assert f"judge.base_url={server.url}: no reply from own" in first.err
    assert written(first.cell).judge is None and len(server.asked()) == 5
    server.start()
    second = command(*words)
    asked = server.asked()
    assert len(asked) == len({json.dumps(request["messages"]) for request in asked}) == 8
    sent = {(request["key"], request["path"]) for request in asked}
    assert sent == {("Bearer s3cret", "/v1/chat/completions")}
    summary = written(second.cell).judge
    assert (summary.model, summary.mode, summary.n) == ("own", "single", 4)
    assert (summary.replies, summary.unread) == (8, 0)
    assert summary.score == pytest.approx(sum(summary.turns.values()) / 2)
    assert "s3cret" not in "".join(path.read_text() for path in second.cell.path.iterdir())
    third = command(*words)
    assert len(server.asked()) == 8 and written(third.cell).judge == summary
    assert "score" in third.out and "4 prompts, turn 1" in third.out
    file.write_text("[]\n")
    assert "line 1 is not a verdict" in command(*words, status=1).err


GRADES = {
    "Rating: [[7]]": 7.0,
    "[[8.5]] then [[2]]": 8.5,
    "[3]": 3.0,
    "ten": None,
    "[[11]]": None,
    "[[0]]": 0.0,
    "arr[0] is right. Rating: [[9]]": 9.0,
    "refs [1] ... [[8]]": 8.0,
    "[[7.]]": 7.0,
    "[2] of [3]": 2.0,
    "[4] but [[11]]": None,
}
CHOICES = {
    " m\n": 1.0,
    "M. I'm sure.": 0.0,
    "m. M is worse.": 1.0,
    "'M'": 0.0,
    "I'm sure it is M": 0.0,
    "(m)": 1.0,
    "I’m unsure": None,
    "Mm": None,
    "": None,
}


def test_grades_and_choices(tmp_path):
    prompts = JudgePrompts(PUBLISHED)
    assert {text: prompts.rating(text) for text in GRADES} == GRADES
    path = tmp_path / "alpaca.txt"
    path.write_text(ALPACA)
    alpaca = JudgePrompts(str(path))
    assert {reply: alpaca.choice(reply, False) for reply in CHOICES} == CHOICES
    assert [alpaca.choice(letter, True) for letter in "mM"] == [0.0, 1.0]
    bird = Prompt("a", turns=("Name a bird",))
    asked = alpaca.pairwise(bird, ["A {output_2} crow"], ["A tit"])
    assert [question.messages for question in asked] == [
        (("system", "Rank."), ("user", "Name a bird: m A {output_2} crow, M A tit")),
        (("system", "Rank."), ("user", "Name a bird: m A tit, M A {output_2} crow")),
    ]
    with pytest.raises(TaskError, match=r"grades an answer, .* compared; give AlpacaEval's"):
        prompts.pairwise(bird, ["A crow"], ["A tit"])
    with pytest.raises(TaskError, match=r"compares two answers, .* graded; give FastChat's"):
        alpaca.single(bird, ["A crow"], None)


@pytest.mark.parametrize(
    ("category", "first", "second"),
    [
        ("writing", "Q1 A1", "Q1 A1 Q2 A2"),
        ("math", "Q1 R1 A1", "Q1 R1 Q2 R2 Q1 A1 Q2 A2"),
    ],
)
def test_questions_show_what_they_must(category, first, second):
    """Of the published prompts no gap is left, and none of an answer is filled."""
    prompts = JudgePrompts(PUBLISHED)
    prompt = Prompt("2", turns=("Q1?", "Q2?"), reference={"category": category})
    asked = prompts.single(prompt, ["A1", "A2 {question_1}"], ["R1", "R2"])
    texts = [question.messages[1][1] for question in asked]
    assert [re.findall("[QAR][12]", text) for text in texts] == [first.split(), second.split()]
    assert "A2 {question_1}" in texts[1]
    assert not any("{" in text.replace("{question_1}", "").replace("{{", "") for text in texts)


def test_a_missing_reference_is_one_line():
    prompt = Prompt("2", turns=("Q1", "Q2"), reference={"category": "math"})
    with pytest.raises(TaskError, match=r"question 2 \(math\) .* a reference answer and there is"):
        JudgePrompts(PUBLISHED).single(prompt, ["a1", "a2"], None)


def test_an_order_that_decides_is_a_tie():
    def summary(**games):
        """Of each game the verdicts in both orders."""
        verdicts = [
            JudgeVerdict(Question(name, 0, bool(place), ()), value)
            for name, values in games.items()
            for place, value in enumerate(values)
        ]
        return judge_summary(verdicts, "own", "pairwise")

    games = {"won": (1.0, 1.0), "lost": (0.0, 0.0), "first": (1.0, 0.0), "nearly": (1.0, 0.5)}
    found = summary(**games, mute=(None, None), half_read=(1.0, None), half=(None, 1.0))
    assert (found.win_rate, found.n, found.left_out, found.unread) == (0.5, 4, 3, 4)
    said = format_judge_summary(found)
    assert said.startswith("win rate 50.0% [") and said.endswith(
        "judged by own: 4 prompts, 75.0% won where its answer stood first, 37.5% where second, "
        "3 left out, without a verdict in both orders, 4 of 14 replies without a verdict"
    )
    nothing = summary(half_read=(1.0, None))
    assert (nothing.win_rate, nothing.ci95, nothing.n, nothing.left_out) == (None, None, 0, 1)
    assert format_judge_summary(nothing).startswith("win rate –, judged by own: 0 prompts, 1")


def test_an_answer_that_is_not_korean_counts_by_its_root():
    def graded(turn, value, penalised):
        return JudgeVerdict(Question("1", turn, False, ()), value, penalised)

    verdicts = [graded(0, 9.0, True), graded(1, 4.0, False), graded(1, None, True)]
    summary = judge_summary(verdicts, "own", "single")
    assert (summary.score, summary.turns) == (3.5, {"turn_1": 3.0, "turn_2": 4.0})
    assert (summary.unpenalised, summary.penalised, summary.unread) == (6.5, 1, 1)
    assert "1 of 3 grades penalised as not Korean (6.50 without)" in format_judge_summary(summary)
    assert judge_summary([graded(0, 9.0, None)], "own", "single").unpenalised is None


def test_grades_in_komt_bench_depend_on_the_language(command, server, tmp_path):
    server.start()
    rows = [
        {"question_id": number, "category": "writing", "turns": [f"Name {number} rivers.", "And?"]}
        for number in (137, 138, 140)
    ]
    words = (
        f"task=komt_bench task.path={write_rows(tmp_path, 'komt_bench', rows)} method=sps",
        f"judge.base_url={server.url} judge.model=own judge.prompts={PUBLISHED}",
    )
    result = command(*words)
    korean = written(result.cell).judge
    assert korean.penalised == 2 and korean.score < korean.unpenalised, "both turns of 137"
    command(*words, "judge.language_penalty=false")
    plain = written(result.cell).judge
    assert plain.score == pytest.approx(korean.unpenalised) and plain.penalised == 0
    assert len(server.asked()) == 6, "nothing was asked again"


def test_the_win_rate_swaps_places(command, server, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.start()
    rows = [{"instruction": f"Name {n} birds.", "output": "FIRST"} for n in (2, 3, 4)]
    (tmp_path / "alpaca.txt").write_text(ALPACA)
    words = (
        f"task=alpaca task.path={write_rows(tmp_path, 'alpaca', rows)} task.system=null method=sps",
        f"judge.base_url={server.url} judge.model=own judge.prompts={tmp_path / 'alpaca.txt'}",
    )
    result = command(*words)
    against_reference = written(result.cell).judge
    found = {
        name: getattr(against_reference, name) for name in ("mode", "win_rate", "n", "replies")
    }
    assert found == {"mode": "pairwise", "win_rate": 0.0, "n": 3, "replies": 6}
    assert {request["key"] for request in server.asked()} == {None}
    again = command(*words, "judge.against=baseline").store.cell(result.cell.key)
    equal = written(again).judge
    assert (equal.win_rate, equal.replies) == (0.5, 6), "greedy answers are the baseline's own"


GRADED = """
name: own
title: Graded
kind: table
base: [n=2, method=sps]
axes:
  Method: [{label: SpS}]
  Task:
    - {label: MT, overrides: [task=mt_bench, task.system=null, task.path=QUESTIONS]}
    - {label: mini, overrides: [task=mini_gsm]}
rows: [Method]
columns: [Task]
values: [judge_score, tau]
"""


@pytest.mark.slow
def test_a_report_asks_for_the_grades_that_it_shows(command, server, own_report, tmp_path):
    report = own_report(GRADED.replace("QUESTIONS", str(write_rows(tmp_path, "mt_bench"))))
    words = f"{report} n=2 timed=0"
    file = tmp_path / "out" / "report" / "own.md"
    command(words)
    assert "needs judge.base_url" in file.read_text() and file.read_text().count("needs judge") == 1
    judged = (
        f"{words} judge.base_url={server.url} judge.model=own",
        f"judge.references={write_rows(tmp_path, 'gpt4', REFERENCES)} judge.retries=0",
    )
    unreachable = command(*judged, status=1)
    assert "no reply from own" in unreachable.err
    assert "not judged" in file.read_text()
    server.start()
    for _ in range(2):
        command(*judged)
        assert len(server.asked()) == 4
    text = file.read_text()
    assert "judged by own: 2 prompts" in text and "needs judge" not in text


SECRET = 's3cret-"0001\\key'
REPLIES = [
    (200, "not a chat completion: ", '{"error": "loading"}'),
    (200, "not a chat completion: ", '{"choices": [{"message": null}]}'),
    (200, "not a chat completion: ", '{"choices": [{"message": {"content": ["[[7]]"]}}]}'),
    *(
        (status, line, "x" * 150 + " you sent KEY")
        for status, line in (
            (200, "not a chat completion: "),
            (401, "HTTP 401 "),
            (302, "HTTP 302 "),
            (429, "HTTP 429 "),
            (503, "HTTP 503 "),
        )
    ),
]


@pytest.mark.parametrize(("status", "line", "said"), REPLIES)
def test_a_reply_that_is_none_is_shown_without_the_key(server, monkeypatch, status, line, said):
    """Nor does the key follow where the server redirects to; it is sent without its line break."""
    monkeypatch.setenv("JUDGE_KEY", f" {SECRET}\n")
    seen = []

    def answer(request):
        seen.append(request["key"])
        return said.replace("KEY", f"{seen[-1]} {json.dumps(seen[-1])}").encode()

    server.start()
    server.status, server.reply = status, answer
    with pytest.raises(JudgeError) as raised:
        ask(judge(base_url=server.url, retries=1), judge().asked((("user", "hello"),)))
    shown = said.replace("KEY", "Bearer (hidden)")
    assert f"no reply from own ({line}{shown}" in str(raised.value)
    assert seen == [f"Bearer {SECRET}"] * (1 if status in (302, 401) else 2), (
        "a refused request is not sent again"
    )
    assert "s3cret" not in str(raised.value) and "0001" not in str(raised.value)


@pytest.mark.parametrize("key", ["s3cr\u00e9t", "s3c\nret"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(command, monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    words = "judge.base_url=http://127.0.0.1:1/v1 judge.model=own judge.key_env=JUDGE_KEY"
    assert command(words, status=2).err == (
        "error: judge.key_env=JUDGE_KEY: the key in this environment variable has a character "
        "that is not printable ASCII; set it again\n"
    )
    judge(base_url=None).check()  # nothing is judged
