"""A user's own prompts: each row becomes the prompt it says, every fault is one clear line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.base import Prompt
from tasks.prompts import Prompts, PromptsOptions, _PromptRow

text = st.text(min_size=1, max_size=20)
talk = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), text), max_size=6)


@pytest.fixture
def read(tmp_path):
    """Write rows (or raw lines) to a file and read them as prompts."""

    def read(*rows, n=None):
        path = tmp_path / "prompts.jsonl"
        path.write_text(
            "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        )
        return Prompts(PromptsOptions(path=str(path))).prompts(n)

    return read


def test_each_kind_of_row(read):
    rows = [
        {"id": "a", "prompt": "Once upon"},
        {"id": 7, "input_ids": [1, 2, 3], "note": "ignored"},
        {"id": "c", "messages": [{"role": "user", "content": "user 0"}]},
    ]
    assert read(*rows) == [
        Prompt("a", text="Once upon"),
        Prompt("7", input_ids=(1, 2, 3)),
        Prompt("c", turns=("user 0",)),
    ]
    assert [prompt.id for prompt in read(*rows, n=2)] == ["a", "7"]
    assert [prompt.id for prompt in read(rows[0], "", rows[2])] == ["a", "c"]


@settings(max_examples=50, deadline=None)
@given(st.none() | text, talk, st.lists(text, min_size=1, max_size=3))
def test_no_message_is_lost_or_moved(system, history, asked):
    before = [("system", system)] * (system is not None)
    said = [*before, *history, *(("user", content) for content in asked)]
    messages = [{"role": role, "content": content} for role, content in said]
    prompt = _PromptRow(id="x", messages=messages).as_prompt("refuse", None)
    again = [("system", prompt.system)] * (prompt.system is not None)
    again += [*prompt.prefix, *(("user", turn) for turn in prompt.turns)]
    assert again == said
    assert not prompt.prefix or prompt.prefix[-1][0] == "assistant"


def test_unicode_line_separators_do_not_break_rows(read):
    [prompt] = read(
        json.dumps({"id": "a", "prompt": "one\u2028two\u0085three"}, ensure_ascii=False)
    )
    assert prompt.text == "one\u2028two\u0085three"


def test_a_path_may_begin_with_the_home_folder():
    assert PromptsOptions(path="~/own.jsonl").path == Path.home() / "own.jsonl"


def test_fields_that_are_not_read_are_named_once(tmp_path, caplog):
    file = tmp_path / "own.jsonl"
    rows = '{"id": "1", "prompt": "a", "reference": "b"}\n{"id": "2", "prompt": "a", "level": 1}\n'
    file.write_text(rows)
    task = Prompts(PromptsOptions(path=file))
    assert task.prompts() == task.prompts()
    [line] = caplog.messages
    assert line.startswith(
        f"{file}: not read: level, reference; task=dataset with task.prompt, task.target"
    )
