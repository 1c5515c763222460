"""Digests of the code that decides tokens and scores.

A digest is of syntax trees: those of a class's file and of the modules that it imports from its own
package, or from its own folder, and from `methods` and `tasks`. Comments, docstrings, formatting,
annotations and the names and places of these files do not count. Any other change does, so a digest
that differs says that tokens may differ: `SAME` lists the changes after which the tests of golden
tokens found every token as it was (`make same-tokens`)."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from bench.config.paths import PROJECT
from methods import registry

if TYPE_CHECKING:
    from bench.config.parts import CellParts
    from bench.config.section import Named

SAME = PROJECT / "conf/same_tokens.json"
"""[earlier digest, later digest] of code that gives the same tokens or scores."""
SHARED = ("methods", "tasks")
"""The packages of this project whose modules a class may rest on."""
LOOP = (
    "bench/run/answer.py",
    "methods/batch.py",
    "methods/decode.py",
    "methods/engine/loading.py",
    "methods/likelihood.py",
    "methods/method.py",
    "methods/trace.py",
)
"""The decode loop and the forwards of the target begin here."""
SCORER = "scorer"
_UNREAD = frozenset({"ctx", "kind", "type_comment", "type_params"})
_NAMING = ast.Import | ast.ImportFrom | ast.Name
_INSTALLED = ("site-packages", "dist-packages")


class _Code(ast.NodeTransformer):
    """Leaves out what decides nothing."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("annotation", "returns"):
            if hasattr(node, name):
                setattr(node, name, None)
        return super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value))

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        name = getattr(node.test, "id", getattr(node.test, "attr", ""))
        if name == "TYPE_CHECKING":
            return [self.visit(line) for line in node.orelse]
        return self.generic_visit(node)


def _plain(node: object) -> Any:
    """A syntax tree as JSON data that is equal in all versions of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _UNREAD)
        filled = {name: _plain(value) for name, value in fields if value not in (None, [])}
        return [type(node).__name__, filled]
    return list(map(_plain, node)) if isinstance(node, list) else repr(node)


def _sha256(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@cache
def _tree(file: Path) -> tuple[ast.Module, list[ast.Import | ast.ImportFrom]]:
    """What decides something in a file, and the imports in it whose names that uses."""
    tree: ast.Module = _Code().visit(ast.parse(file.read_bytes(), str(file)))
    nodes = [node for node in ast.walk(tree) if isinstance(node, _NAMING)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    imports = [node for node in nodes if not isinstance(node, ast.Name)]
    for node in imports:  # for annotations alone
        node.names = [
            alias
            for alias in node.names
            if alias.name == "*" or (alias.asname or alias.name).partition(".")[0] in used
        ]
    return tree, [node for node in imports if node.names]


def _module_file(parts: Sequence[str], places: Iterable[Path]) -> Path | None:
    """The file of a module in the first of these folders that has it."""
    for place in places:
        path = place.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def _places(name: str, file: Path) -> list[Path]:
    """Where a package or module that `file` imports lies, if its code counts."""
    project = [PROJECT] if name in SHARED else []
    if any(file.is_relative_to(PROJECT / folder) for folder in ("bench", *SHARED)):
        return project
    neighbours = [] if file.parent.name in _INSTALLED else [file.parent]
    packages = [folder.parent for folder in file.parents if folder.name == name]
    return [*packages, *neighbours, *project]


def _imported(node: ast.Import | ast.ImportFrom, file: Path) -> list[Path]:
    """The files whose code counts among those of the modules that an import of `file` names."""
    if isinstance(node, ast.Import):
        modules = [alias.name.split(".") for alias in node.names]
    else:
        module = node.module.split(".") if node.module else []
        modules = [[*module, *more] for more in ([], *([alias.name] for alias in node.names))]
    level = getattr(node, "level", 0)
    files = (
        _module_file(parts, [file.parents[level - 1]] if level else _places(parts[0], file))
        for parts in modules
        if parts
    )
    return [*filter(None, files)]


@cache
def _imports(file: Path) -> list[tuple[ast.Import | ast.ImportFrom, list[Path]]]:
    """Those of a file whose names its code uses, each with the files whose code counts."""
    return [(node, _imported(node, file)) for node in _tree(file)[1]]


@cache
def _statements(file: Path) -> str:
    """The digest of a file without the imports at its top."""
    body = [
        node for node in _tree(file)[0].body if not isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return _sha256(_plain(body))


@cache
def _content(file: Path) -> str:
    """The digest of a file; an imported file counts by what it holds, not by its name."""
    names = [
        [
            sorted(map(_statements, imported))
            or [getattr(node, "module", None) or "", getattr(node, "level", 0)],
            sorted([alias.name, alias.asname or ""] for alias in node.names),
        ]
        for node, imported in _imports(file)
    ]
    return _sha256([sorted(names), _statements(file)])


def _rests_on(files: Iterable[Path], without: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """These files and all that they import, without those of `without` and what only those
    import."""
    reached: set[Path] = set()
    left = list(files)
    while left:
        file = left.pop()
        if file not in reached | without:
            reached.add(file)
            left += [other for _, imported in _imports(file) for other in imported]
    return frozenset(reached)


def _digest(files: Iterable[Path]) -> str:
    return _sha256(sorted({_content(file) for file in files}))[:16]


def _file_of(option: type[Any]) -> Path:
    """Where a class is written. Raises TypeError where that is no file."""
    return Path(inspect.getfile(option)).resolve()


def _classes(value: Any) -> frozenset[type[Any]]:
    """The classes of the options in a value, and of those inside them: a rule may hold others."""
    classes: frozenset[type[Any]] = frozenset()
    if isinstance(value, BaseModel):
        classes = frozenset({type(value)})
        value = dict(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    inside = map(_classes, value) if isinstance(value, list | tuple) else ()
    return classes.union(*inside)


@cache
def _loop(engine: str) -> frozenset[Path]:
    """The decode loop, without the rules and drafters of which it knows some."""
    methods = {
        _file_of(option)
        for folder in registry.BASES
        for option in registry.classes(folder).values()
    }
    files = [PROJECT / name for name in LOOP]
    if engine == "vllm":
        files += (PROJECT / "bench/run/vllm").glob("*.py")
    return _rests_on(files, frozenset(methods))


@cache
def of_classes(classes: frozenset[type[Any]], engine: str | None) -> str:
    """The digest of these classes and of what they rest on; with an engine without what stands in
    its loop."""
    loop = frozenset[Path]() if engine is None else _loop(engine)
    return _digest(_rests_on(map(_file_of, classes)) - loop)


def code_of(cell: CellParts) -> dict[str, str]:
    """`rule`, `drafter`, `loop`, `scorer`, with pruning `pruning` -> the digest of its code."""
    engine = cell.engine.name
    parts: dict[str, Named[Any] | None] = {
        "rule": cell.rule,
        "drafter": cell.drafter,
        "pruning": cell.pruning,
    }
    code = {
        name: of_classes(_classes(part.options), engine)
        for name, part in parts.items()
        if part is not None
    }
    scores = getattr(cell.task.options, "scorer", None) or cell.load_task()
    return code | {
        "loop": _digest(_loop(engine)),
        SCORER: of_classes(frozenset({type(scores)}), None),
    }


@cache
def _earlier() -> dict[str, str]:
    return {later: earlier for earlier, later in json.loads(SAME.read_text(encoding="utf-8"))}


def first_known(digest: str) -> str:
    """The earliest digest that is known to give the same tokens."""
    while (earlier := _earlier().get(digest)) is not None:
        digest = earlier
    return digest


def same_as(digest: str) -> frozenset[str]:
    """The digests that are known to give the tokens, or the scores, that this one gives."""
    known = first_known(digest)
    return frozenset({known, *(later for later in _earlier() if first_known(later) == known)})


def suffix(code: Mapping[str, str]) -> str:
    """Names code in a folder's name, without that of the scorer."""
    return _sha256({part: first_known(digest) for part, digest in code.items() if part != SCORER})[
        :8
    ]


def shipped() -> dict[str, str]:
    """`rules/mars` -> the digest of its code, of all rules, drafters, scorers and loops here."""
    from tasks import mini
    from tasks.scorers import base

    code = {
        f"{folder}/{name}": of_classes(frozenset({option}), "native")
        for folder in registry.BASES
        for name, option in registry.classes(folder).items()
    }
    scorers: list[type[Any]] = [mini.MiniTask, *base.Scorer.__subclasses__()]
    for scorer in scorers:
        code[f"scorers/{scorer.__name__}"] = of_classes(frozenset({scorer}), None)
    return code | {f"loop/{engine}": _digest(_loop(engine)) for engine in ("native", "vllm")}


if __name__ == "__main__":
    json.dump(shipped(), sys.stdout)
