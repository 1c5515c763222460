"""Check sizes of folders, files and functions, import order and cycles: `make structure`, `python
-m tests.structure`.

Prints the number of breaches of each kind and one line for each. Exit status 1 when there is one.
The program reads source text only; nothing of the project is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
TOPS = ("bench", "methods", "tasks", "results", "plots")
FILE_LINES, FUNCTION_LINES = 1100, 120
BUDGETS: dict[str, int] = {}
"""Top folder -> the most lines of Python it may have, blank ones and comments included. Budgets
only fall; each leaves room for a rule, a metric or a figure of your own."""

# The order of the folders (rooms, below), top first. A file may import its own room, a room of its
# own line, and the lines below.
ORDER = (
    ("bench/commands",),
    ("bench/rehearsal",),
    ("bench/reports", "bench/dry_run", "bench/training"),
    ("bench/run",),
    ("bench/config",),
    ("plots",),
    ("results/reports",),
    ("results/exchange",),
    ("results/metrics",),
    ("results/store",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
# What a top-level folder may import of the others; bench may import all of them.
MAY_IMPORT = {
    "bench": set(TOPS),
    "plots": {"plots", "results"},
    "results": {"results"},
    "methods": {"methods"},
    "tasks": {"tasks"},
}
# Libraries that only one folder may import.
LIBRARY_HOME = {"matplotlib": "plots"}


@dataclass(frozen=True)
class Import:
    """One import statement.

    source  the importing file, relative to the checkout
    line    its line number
    name    the dotted name as imported; `from a import b` gives a.b
    typing  it stands under `if TYPE_CHECKING:`
    """

    source: str
    line: int
    name: str
    typing: bool


@dataclass
class Module:
    """A source file and what it says.

    path     relative to the checkout, with slashes
    text     its source
    imports  all import statements, those inside functions too
    """

    path: str
    text: str
    imports: list[Import] = field(init=False)

    def __post_init__(self) -> None:
        self.imports = list(_imports(self.path, self.syntax))

    @cached_property
    def syntax(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def is_data(self) -> bool:
        """It consists of imports, assignments and classes of fields alone: no function, loop or
        branch."""
        return bool(self.syntax.body) and all(_is_data(statement) for statement in self.syntax.body)

    @property
    def functions(self) -> Iterator[tuple[str, int, int]]:
        """(name, first line, number of lines) of each function and method; decorators are not
        counted."""
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


@dataclass
class Project:
    """The source files of a checkout and the arrows between them.

    modules  path → Module
    """

    modules: dict[str, Module]

    @classmethod
    def read(cls, root: Path = PROJECT) -> Project:
        """Read all Python files under TOPS.

        Raises SyntaxError for a file that does not parse."""
        paths = (
            path
            for top in TOPS
            for path in sorted((root / top).rglob("*.py"))
            if "__pycache__" not in path.parts
        )
        return cls(
            {
                str(path.relative_to(root)): Module(
                    path.relative_to(root).as_posix(), path.read_text()
                )
                for path in paths
            }
        )

    def target(self, name: str) -> str | None:
        """The file that a dotted name lies in: a module, a name of a module, or a package's
        __init__; None if it is not of this project."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            stem = "/".join(parts[:end])
            for path in (f"{stem}.py", f"{stem}/__init__.py"):
                if path in self.modules:
                    return path
        return None

    @cached_property
    def arrows(self) -> dict[tuple[str, str], int]:
        """(importing file, imported file) → line of the first such import. Imports for type
        checkers are left out."""
        return self._arrows(typing=False)

    @cached_property
    def all_arrows(self) -> dict[tuple[str, str], int]:
        """The same with the imports for type checkers."""
        return self._arrows(typing=True)

    def _arrows(self, typing: bool) -> dict[tuple[str, str], int]:
        arrows: dict[tuple[str, str], int] = {}
        for module in self.modules.values():
            for statement in module.imports:
                target = self.target(statement.name)
                if target and target != module.path and (typing or not statement.typing):
                    arrows.setdefault((module.path, target), statement.line)
        return arrows


def _imports(path: str, tree: ast.AST, typing: bool = False) -> Iterator[Import]:
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    inside = package if path.endswith("__init__.py") else package[:-1]
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, alias.name, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (
                Import(path, node.lineno, f"{stem}.{alias.name}", typing) for alias in node.names
            )
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from _imports(path, ast.Module([child], []), typing=True)
            yield from _imports(path, ast.Module(node.orelse, []), typing)
        else:
            yield from _imports(path, node, typing)


def _is_data(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ClassDef):
        return all(_is_data(child) for child in statement.body)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    assigns = isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign)
    return assigns and not any(isinstance(node, ast.Lambda) for node in ast.walk(statement))


def room(path: str) -> str:
    """The room of a file: a/b/c.py lies in a/b, bench/x.py in bench/commands, plots is one room.

    Each file at the top of methods, tasks and results is a room of its own: some lie above the
    rooms there, some below.
    """
    parts = path.split("/")
    if parts[0] == "plots":
        return "plots"
    if parts[0] == "bench" and len(parts) == 2:
        return "bench/commands"
    return "/".join(parts[:2])


def large_rooms(root: Path) -> list[str]:
    """Top folders with more lines than their budget."""
    sizes = {
        top: sum(len(path.read_text().splitlines()) for path in (root / top).rglob("*.py"))
        for top in BUDGETS
    }
    return [
        f"{top}: {lines:,} lines, budget {BUDGETS[top]:,}"
        for top, lines in sizes.items()
        if lines > BUDGETS[top]
    ]


def long_files(project: Project) -> list[str]:
    return [
        f"{module.path}: {module.lines} lines"
        for module in project.modules.values()
        if module.lines > FILE_LINES and not module.is_data
    ]


def excepted_data(project: Project) -> list[str]:
    """Files over the limit that are exempt because they are data alone."""
    return [
        f"{module.path}: {module.lines} lines"
        for module in project.modules.values()
        if module.lines > FILE_LINES and module.is_data
    ]


def long_functions(project: Project) -> list[str]:
    return [
        f"{module.path}:{line} {name}: {lines} lines"
        for module in project.modules.values()
        for name, line, lines in module.functions
        if lines > FUNCTION_LINES
    ]


def upward(project: Project) -> list[str]:
    """Imports against ORDER or MAY_IMPORT, those for type checkers too, and of a library outside
    its home."""
    breaches = []
    for (source, target), line in project.all_arrows.items():
        above, below = room(source), room(target)
        if target.split("/")[0] not in MAY_IMPORT[source.split("/")[0]]:
            breaches.append(f"{source}:{line} imports {target}: {above} may not import {below}")
        elif above in LEVEL and below in LEVEL and LEVEL[above] > LEVEL[below]:
            breaches.append(f"{source}:{line} imports {target}: {below} is above {above}")
    for module in project.modules.values():
        for statement in module.imports:
            home = LIBRARY_HOME.get(statement.name.split(".")[0])
            if home and module.path.split("/")[0] != home:
                breaches.append(
                    f"{module.path}:{statement.line} imports {statement.name}: only {home} may"
                )
    return breaches


def circles(arrows: Iterable[tuple[str, str]]) -> list[str]:
    """Circles of a graph given by its arrows: one is listed, its arrows are taken out, and so on
    until none is left."""
    remaining, listed = set(arrows), []
    while True:
        graph: dict[str, list[str]] = {}
        for source, target in sorted(remaining):
            graph.setdefault(source, []).append(target)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]  # TopologicalSorter lists predecessors first
            listed.append(" -> ".join(circle))
            remaining -= set(pairwise(circle))
        else:
            return listed


def room_circles(project: Project) -> list[str]:
    return circles(
        {
            (room(source), room(target))
            for source, target in project.arrows
            if room(source) != room(target)
        }
    )


def check(root: Path = PROJECT) -> dict[str, list[str]]:
    """The breaches of each kind."""
    project = Project.read(root)
    return {
        f"folders over their budget of lines, {sum(BUDGETS.values()):,} in all": large_rooms(root),
        f"files over {FILE_LINES} lines": long_files(project),
        f"functions over {FUNCTION_LINES} lines": long_functions(project),
        "imports that the order of the folders forbids": upward(project),
        "import cycles of files": circles(project.arrows),
        "import cycles of folders": room_circles(project),
    }


def main() -> int:
    """Print each kind of breach with its number, and the breaches; return the exit status."""
    checked = check()
    for title, breaches in checked.items():
        print(f"{'FAIL' if breaches else 'ok':4}  {len(breaches):3} {title}")
        for line in breaches:
            print(f"          {line}")
    for line in excepted_data(Project.read()):
        print(f"      excepted, data alone: {line}")
    return int(any(checked.values()))


if __name__ == "__main__":
    sys.exit(main())
