"""A user's own prompts: each row becomes the prompt it says, every fault is one clear line; tasks are found by name."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks import registry
from tasks.base import Prompt, TaskError
from tasks.mini import BENCHMARKS
from tasks.prompts import Prompts, PromptsOptions, _Row

CONF = Path(__file__).parents[2] / "conf" / "task"
text = st.text(min_size=1, max_size=20)
talk = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), text), max_size=6)


@pytest.fixture
def read(tmp_path):
    """Write rows (or raw lines) to a file and read them as prompts."""

    def read(*rows, n=None):
        path = tmp_path / "prompts.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return Prompts(PromptsOptions(path=str(path))).prompts(n)

    return read


def say(*roles):
    return [{"role": role, "content": f"{role} {i}"} for i, role in enumerate(roles)]


def test_each_kind_of_row(read):
    rows = [
        {"id": "a", "prompt": "Once upon"},
        {"id": 7, "input_ids": [1, 2, 3], "note": "ignored"},
        {"id": "c", "messages": say("user")},
    ]
    assert read(*rows) == [
        Prompt("a", text="Once upon"),
        Prompt("7", input_ids=(1, 2, 3)),
        Prompt("c", turns=("user 0",)),
    ]
    assert [prompt.id for prompt in read(*rows, n=2)] == ["a", "7"]
    assert [prompt.id for prompt in read(rows[0], "", rows[2])] == ["a", "c"]


def test_trailing_user_messages_become_turns(read):
    [prompt] = read({"id": "a", "messages": say("system", "user", "assistant", "user", "user")})
    assert prompt.system == "system 0"
    assert prompt.prefix == (("user", "user 1"), ("assistant", "assistant 2"))
    assert prompt.turns == ("user 3", "user 4")


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.none() | text, talk, st.lists(text, min_size=1, max_size=3))
def test_no_message_is_lost_or_moved(system, history, asked):
    said = [("system", system)] * (system is not None) + history + [("user", content) for content in asked]
    row = _Row(id="x", messages=[{"role": role, "content": content} for role, content in said])
    prompt = row.as_prompt("refuse", None)
    again = [("system", prompt.system)] * (prompt.system is not None)
    again += [*prompt.prefix, *(("user", turn) for turn in prompt.turns)]
    assert again == said
    assert not prompt.prefix or prompt.prefix[-1][0] == "assistant"


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], "no rows; give a JSONL file"),
        (["", "  "], "no rows"),
        ([{"id": "a", "prompt": "p"}, '{"id": "b", '], r"line 2: not valid JSON \(Expecting property name"),
        ([{"id": "a", "prompt": "p"}, '{"id": "b", "id": "c", "prompt": "x"}'], "line 2: the key 'id' is given twice"),
        (['{"id": "a", "messages": [{"role": "user", "content": "x", "content": "y"}]}'], "line 1: the key 'content'"),
        (["3"], "line 1: must be a JSON object, got int"),
        ([{"prompt": "p"}], "line 1: id: missing"),
        ([{"id": "a"}], "line 1: needs exactly one of prompt, messages, input_ids; has none"),
        ([{"id": "a", "prompt": "p", "input_ids": [1]}], "line 1: needs exactly one of .*; has prompt and input_ids"),
        ([{"id": "a", "prompt": "p"}, "", {"id": "a", "prompt": "q"}], "line 3: id 'a' is already used on line 1"),
        ([{"id": 1, "prompt": "p"}, {"id": "1", "prompt": "q"}], "line 2: id '1' is already used on line 1"),
        ([{"id": "a", "prompt": ""}], "line 1: prompt: .*at least 1 character"),
        ([{"id": "a", "prompt": float("nan")}], "line 1: prompt: .*valid string"),
        ([{"id": "a", "prompt": 12}], "line 1: prompt: .*valid string"),
        ([{"id": "a", "input_ids": []}], "line 1: input_ids: .*at least 1 item"),
        ([{"id": "a", "input_ids": [1, -2]}], "line 1: input_ids.1: .*greater than or equal to 0"),
        ([{"id": "a", "input_ids": [True]}], "line 1: input_ids.0: .*valid integer"),
        ([{"id": "a", "messages": say("user", "assistant")}], "line 1: messages: the last message must be the user's"),
        ([{"id": "a", "messages": say("user", "system")}], "line 1: messages: a system message may only come first"),
        ([{"id": "a", "messages": [{"role": "tool", "content": "x"}]}], "line 1: messages.0.role: .*'system', 'user'"),
        ([{"id": "a", "messages": [{"role": "user"}]}], "line 1: messages.0.content: missing"),
    ],
)
def test_each_fault_is_one_clear_line(read, rows, error):
    with pytest.raises(TaskError, match=error) as caught:
        read(*rows)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    for path, error in ((tmp_path / "none.jsonl", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(TaskError, match=f"{error}; give a JSONL file"):
            Prompts(PromptsOptions(path=str(path))).prompts()
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="cannot be read as UTF-8"):
        Prompts(PromptsOptions(path=str(binary))).prompts()


def test_a_byte_order_mark_is_no_part_of_the_first_row(read):
    [prompt] = read("\ufeff" + json.dumps({"id": "a", "prompt": "p"}))
    assert (prompt.id, prompt.text) == ("a", "p")


def test_unicode_line_separators_do_not_break_rows(read):
    [prompt] = read(json.dumps({"id": "a", "prompt": "one\u2028two\u0085three"}, ensure_ascii=False))
    assert prompt.text == "one\u2028two\u0085three"


class TestRegistry:
    def test_every_embedded_benchmark_is_a_task(self):
        assert set(registry.names()) == {*BENCHMARKS, "dataset", "prompts"}
        for name in BENCHMARKS:
            task = registry.build(name, registry.options(name)(max_new_tokens=8))
            [prompt] = task.prompts(1, seed=0)
            assert task.name == name and prompt.id.startswith(f"{name}-test-")

    def test_each_task_has_a_configuration_that_its_options_accept(self):
        for path in (CONF / f"{name}.yaml" for name in registry.names() if name != "dataset"):
            written = yaml.safe_load(path.read_text())
            assert written.pop("name") == path.stem
            if path.stem == "prompts":
                written["path"] = "given.jsonl"
            options = registry.options(path.stem)(**written)
            assert set(written) == set(type(options).model_fields)
            for name, field in type(options).model_fields.items():
                assert field.is_required() or field.default == written[name]

    def test_unknown_names_and_options_are_refused(self):
        with pytest.raises(TaskError, match="task=nope: unknown; there are dataset, mini_chat"):
            registry.build("nope", PromptsOptions(path="p"))
        with pytest.raises(ValidationError):
            registry.options("mini_gsm")(max_new_tokens=8, path="x")


def test_fields_that_are_not_read_are_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"id": "1", "prompt": "a", "reference": "b"}\n{"id": "2", "prompt": "a", "level": 1}\n')
    task = Prompts(PromptsOptions(path=file))
    assert task.prompts() == task.prompts()
    [line] = caplog.messages
    assert line.startswith(f"{file}: not read: level, reference; task=dataset with task.prompt, task.target")
