"""A skip that nobody expects fails continuous integration, and what was not tested is listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.helpers.ci import MISSING, untested
from tests.helpers.tiny_models import changed_models, language_model

pytest_plugins = ("pytester",)
TESTS = Path(__file__).parent


def reasons_in(path: Path) -> Iterator[str]:
    """What stands before the first value in the reason of each skip of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        given = [word.value for word in node.keywords if word.arg == "reason"]
        given += node.args if node.func.attr == "skip" else []
        for reason in given if node.func.attr in ("skip", "skipif") else []:
            first = reason.values[0] if isinstance(reason, ast.JoinedStr) else reason
            if isinstance(first, ast.Constant):
                yield str(first.value)


@pytest.mark.parametrize(
    ("reason", "on", "status"),
    [
        ("no reference data at /x", "true", 0),
        ("it is too hard", "true", 1),
        ("it is too hard", "", 0),
    ],
)
def test_an_unexpected_skip_fails(pytester, monkeypatch, reason, on, status):
    monkeypatch.setenv("CI", on)
    pytester.makepyfile(
        "import pytest\ndef test_this():\n    pass\ndef test_other():\n    "
        f"pytest.skip({reason!r})\n"
    )
    result = pytester.runpytest_inprocess("-p", "tests.helpers.ci", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, skipped=1)
    out = result.stdout.str()
    assert result.ret == status and ("test_other: it is too hard" in out) == bool(status)
    listed = reason if "hard" in reason else "the folder of reference data (LEEWAY_SHARED)"
    assert "not tested on this machine" in out and f"{listed} (1 test)" in out


def test_features_are_listed_the_commonest_first():
    reasons = ["no browser", *["bubblewrap does not work here: there is no `bwrap`"] * 3]
    assert untested(reasons) == [
        "the sandbox of code that a model wrote: apt install bubblewrap (3 tests)",
        "the page in a browser: apt install chromium (1 test)",
    ]


def test_every_reason_of_the_tests_is_expected():
    """Also the reasons of machines that lack what this one has."""
    reasons = {reason for path in TESTS.rglob("*.py") for reason in reasons_in(path)}
    assert {"bubblewrap does not work here: ", "no browser", "no reference data at "} <= reasons
    assert [one for one in reasons if not one.startswith(tuple(MISSING))] == []


def test_a_test_that_changes_a_shared_model_fails():
    model = language_model("llama", layers=1, seed=77)
    assert changed_models() == []
    with torch.no_grad():
        model.model.lm_head.weight.data.mul_(0.5)
    assert changed_models() == ["llama-1-77 of 64 tokens"] and changed_models() == []
    assert language_model("llama", layers=1, seed=77) is not model
