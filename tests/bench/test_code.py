"""Answers are used again only for the code that gave them: what counts as other code, and what a
command does with answers of other code."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from bench.config import code
from bench.config.code import SAME, of_classes, shipped
from bench.run.requested_cell import changed
from methods import registry
from tests.helpers.stores import answers
from tests.helpers.tables import rows

RULE = '''"""A rule."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from methods.rules.base import Rule
from limits import LIMIT as limit

if TYPE_CHECKING:
    from torch import Tensor


class Floor(Rule):
    """Keeps what is likely."""

    floor: float = 0.3

    def decide(self, view: Any) -> Tensor:
        kept = view.p > self.floor * limit  # in one step
        return kept
'''
LIMITS = "LIMIT = 2.0\nUNUSED = 1\n"

EDITS = rows("""
a comment | rule.py | # in one step | # at once | same
a docstring | rule.py | Keeps what is likely. | Keeps the likely. | same
formatting | rule.py | self.floor * limit | (self.floor  *  limit) | same
an annotation | rule.py | view: Any) -> Tensor | view: object) | same
an annotated variable | rule.py | kept = view | kept: Any = view | same
an import for types | rule.py | from torch import Tensor | import torch | same
an unused import | rule.py | from typing | import math; from typing | same
a comparison | rule.py | view.p > self | view.p >= self | other
a default | rule.py | = 0.3 | = 0.4 | other
another name imported | rule.py | LIMIT as limit | UNUSED as limit | other
a constant of a neighbour | limits.py | 2.0 | 3.0 | other
""")
"""What is edited, in which file, before and after; is it the same code?"""


def digest(folder: Path, name: str = "rule") -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for module in (name, "limits"):
            patch.delitem(sys.modules, module, raising=False)
        return of_classes(frozenset({import_module(name).Floor}), "native")


@pytest.fixture
def written(tmp_path) -> Callable[..., Path]:
    def write(name: str, **edited: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for file, text in {"rule.py": RULE, "limits.py": LIMITS, **edited}.items():
            (folder / file).write_text(text)
        return folder

    return write


@pytest.mark.parametrize(("what", "file", "old", "new", "code"), EDITS)
def test_what_counts_as_other_code(what, file, old, new, code, written):
    text = {"rule.py": RULE, "limits.py": LIMITS}[file]
    assert old in text
    before, after = written("before"), written("after", **{file: text.replace(old, new)})
    assert (digest(before) == digest(after)) == (code == "same"), what


def test_a_moved_file_is_the_same_code(written):
    before, after = written("before"), written("after")
    (after / "rule.py").rename(after / "renamed.py")
    (after / "limits.py").rename(after / "bounds.py")
    text = (after / "renamed.py").read_text().replace("from limits", "from bounds")
    (after / "renamed.py").write_text(text)
    assert digest(before) == digest(after, "renamed")


def test_modules_of_a_package_count(tmp_path):
    """By absolute and by relative imports, also inside a function, but not the packages beside."""
    package = tmp_path / "site-packages" / "mine"
    (package / "inner").mkdir(parents=True)
    (package.parent / "foreign.py").write_text("")
    for name in ("a", "b", "inner/c", "lone"):
        (package / f"{name}.py").write_text("X = 1\n")
    (package / "rule.py").write_text(
        "import foreign\nfrom mine import a\nfrom .inner.c import X\nfrom .b import X as Y\n"
        "def f():\n    from mine.lone import X as Z\n    return foreign, a, X, Y, Z\n"
    )
    files = code._rests_on([package / "rule.py"])
    assert {str(file.relative_to(package)) for file in files} == {
        "rule.py",
        "a.py",
        "b.py",
        "inner/c.py",
        "lone.py",
    }


def test_what_the_shipped_parts_rest_on():
    assert {"rules/mars", "drafters/eagle3", "scorers/Harness", "loop/native"} <= shipped().keys()
    loop = {str(file.relative_to(code.PROJECT)) for file in code._loop("native")}
    assert {"methods/decode.py", "methods/engine/decoder.py", "methods/sampling.py"} <= loop
    assert not loop & {"methods/rules/mars.py", "methods/rules/lossless.py"}
    parts = {
        code._file_of(part)
        for kind in ("rules", "drafters")
        for part in registry.classes(kind).values()
    }
    taken = {
        path.name
        for file in code._loop("native")
        for _, paths in code._imports(file)
        for path in parts.intersection(paths)
    }
    assert taken == {"lossless.py", "lookup.py"}, "of plain decoding: another rule is no other loop"


def test_code_that_is_known_to_give_the_same_tokens(monkeypatch):
    monkeypatch.setattr(code, "_earlier", lambda: {"b": "a", "c": "b"})
    assert code.same_as("c") == {"a", "b", "c"} and code.same_as("d") == {"d"}
    before = {"rule": "a", "loop": "x", "scorer": "s"}
    assert changed(before, {"rule": {"a", "c"}, "loop": {"x"}, "scorer": {"t"}}) == []
    assert changed(before, {"rule": {"d"}, "loop": {"y"}, "scorer": {"s"}}) == ["loop", "rule"]
    assert changed(before, {"rule": {"a"}, "loop": {"x"}, "pruning": {"p"}}) == ["pruning"]
    assert changed(before, {"rule": {"a"}}) == ["loop"]


def test_the_table_of_same_tokens_is_whole():
    pairs = json.loads(SAME.read_text())
    later = [pair[1] for pair in pairs]
    assert len(set(later)) == len(later), "each digest has one earlier one"
    assert all(len(digest) == 16 for pair in pairs for digest in pair)
    assert all(map(code.first_known, later)), "no digest is its own ancestor"


def test_a_tree_is_equal_in_all_versions_of_python():
    """3.13 leaves empty fields out of `ast.dump`; `kind` and `ctx` say nothing."""
    assert code._plain(ast.parse("f(x)").body[0]) == [
        "Expr",
        {"value": ["Call", {"func": ["Name", {"id": "'f'"}], "args": [["Name", {"id": "'x'"}]]}]},
    ]


@pytest.fixture
def edit(monkeypatch) -> Callable[..., None]:
    """Gives a part of the code of every cell another digest."""
    true, changes = code.code_of, {}

    def other(cell: object) -> dict[str, str]:
        digests = true(cell)
        return digests | {part: changes[part] for part in changes if part in digests}

    for module in ("config.cell", "config.code", "run.requested_cell", "run.claims"):
        monkeypatch.setattr(f"bench.{module}.code_of", other)
    return lambda part: changes.update({part: OTHER})


@pytest.fixture
def first(command):
    """A command that has measured, and its cell."""
    return command("method=mars task=mini_gsm")


OTHER = "0" * 16


@pytest.mark.parametrize(
    ("part", "what"),
    [("rule", "rule=mars"), ("drafter", "drafter=model"), ("loop", "the decode loop")],
)
def test_other_code_decodes_anew_beside(command, first, edit, caplog, part, what):
    before, name = answers(first.store.root), first.cell.key
    edit(part)
    again = command("method=mars n=4")
    assert f"are of other code of {what}: they stay" in caplog.text
    caplog.clear()
    after = answers(again.store.root)
    [fresh] = [name for name in after.keys() - before.keys() if "mars" in name]
    assert after[name] == before[name], "the earlier answers stay as they are"
    assert len(after[fresh].splitlines()) == 4, "none is mixed into the new ones"
    assert again.store.cell(fresh).config()["code"][part] == OTHER
    assert (
        answers(command("method=mars n=4").store.root) == after and "other code" not in caplog.text
    )


def test_another_scorer_scores_the_stored_answers(command, first, edit, caplog):
    before = first.cell.samples()
    edit("scorer")
    again = command("method=mars task=mini_gsm")
    assert "the answers stay, and are scored again" in caplog.text
    caplog.clear()
    assert "quality pass" not in again.out and first.cell.samples() == before
    assert first.cell.config()["code"]["scorer"] == OTHER
    command("method=mars task=mini_gsm")
    assert "scored again" not in caplog.text


def test_answers_of_unrecorded_code_are_shown_but_not_extended(command, first, caplog):
    for cell in first.store.cells():
        config = cell.config()
        del config["code"]
        cell.write_config(config)
    before = answers(first.store.root)
    assert answers(command("method=mars").store.root) == before
    assert "nobody recorded the code" in caplog.text
    more = answers(command("method=mars n=4").store.root)
    assert more.items() >= before.items() and len(more) == 2 * len(before)
