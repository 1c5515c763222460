"""Templates of a shared YAML run no commands, and fail in one line."""

from __future__ import annotations

import pytest

from tasks.base import TaskError
from tasks.dataset import Dataset, DatasetOptions
from tasks.templates import TemplateFault, render

ROW = {"a": 1, "text": "ü", "items": [1, [2]], "nested": {"k": (3, None)}}


def dataset(tmp_path, **options) -> Dataset:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "one"}\n{"q": "two"}\n')
    given = {"path": str(path), "version": 1, "licence": "none", "prompt": "{{ q }}", "scorer": {"name": "none"},
             "shots": {"count": 0}, **options}
    return Dataset("own", DatasetOptions(**given))


@pytest.mark.parametrize("template", [
    "{{ cycler.__init__.__globals__.os.popen('touch FILE').read() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ self._TemplateReference__context.environment.__class__ }}",
    "{{ items.append(1) }}",
    "{% include '/etc/passwd' %}",
])
def test_templates_reach_nothing(tmp_path, template):
    with pytest.raises(TemplateFault):
        render(template.replace("FILE", str(tmp_path / "made")), ROW)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("template", "complaint"), [
    ("{{ range(10**12) | list }}", "Range too big"),
    ("{{ 'x' * (17 * a) * 2**20 }}", "more than 16777216 characters"),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without end"),
    ("{{ 1 / 0 }}", "division by zero"),
    ("{{ nothing }}", "'nothing' is undefined"),
    ("{% if %}", "Expected an expression"),
    ("{{ a.x.y }}", "has no attribute 'x'"),
])
def test_a_template_that_gives_no_text_is_a_fault(template, complaint):
    with pytest.raises(TemplateFault, match=complaint):
        render(template, ROW)
    assert render("{{ a }}", ROW) == "1", "the next template runs"


def test_a_fault_is_one_line_with_its_place(tmp_path):
    with pytest.raises(TaskError, match=r"rows.jsonl, row 1: 1/0: division by zero$"):
        dataset(tmp_path, where="1/0").prompts()
    with pytest.raises(TaskError, match=r"row 1: no field 'r'; the row has q$"):
        dataset(tmp_path, prompt="{{ r }}").prompts()
    assert [prompt.turns for prompt in dataset(tmp_path, where="q != 'one'").prompts()] == [("two",)]
