"""HumanEval(+) and MBPP(+): evalplus extracts the code from the answer; it is run against the tests
in the sandbox.

The executor of evalplus is not used: its documentation states that it is not a sandbox. pass@k over
several samples per prompt (`task.samples`) is in the summary (results/metrics/intervals.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from tasks.base import Reference, Score
from tasks.sandbox.run import SandboxJob, bubblewrap_fault, run_job
from tasks.scorers.base import Scorer
from tasks.scorers.extract import longest_program

# The "plus" tests compare arrays with numpy, of which they use little, and the sandbox provides no
# packages. As in evalplus, and unlike in numpy, values of another type or length are not close.
NUMPY = """
import math as _math, sys as _sys, types as _types
def _allclose(a, b, rtol=1e-05, atol=1e-08):
    if isinstance(b, (list, tuple)):
        return (type(a) is type(b) and len(a) == len(b)
                and all([_allclose(x, y, rtol, atol) for x, y in zip(a, b)]))
    if not isinstance(a, (int, float, complex)) or not isinstance(b, (int, float, complex)):
        raise TypeError("only numbers, and lists and tuples of them, are compared")
    if a == b or a in (_math.inf, -_math.inf) or b in (_math.inf, -_math.inf):
        return a == b
    return abs(a - b) <= atol + rtol * abs(b)
_numpy = _types.ModuleType("numpy")
_numpy.ndarray, _numpy.float32, _numpy.float64 = type("ndarray", (), {}), "float32", "float64"
_numpy.allclose, _numpy.isclose, _numpy.inf, _numpy.nan = _allclose, _allclose, _math.inf, _math.nan
_sys.modules["numpy"] = _numpy
"""


class Programs(Scorer):
    """Limits of the programs.

    timeout_s  wall time of one program, seconds.
    memory_mb  memory of one program, MiB.
    sandbox    what isolates them; its only value stands in the identity of every stored cell.
    """

    timeout_s: float = Field(5.0, gt=0)
    memory_mb: int = Field(1024, ge=64)
    sandbox: Literal["bubblewrap"] = "bubblewrap"

    def unscorable(self) -> str | None:
        return bubblewrap_fault()

    def run(self, job: SandboxJob) -> str | None:
        """None where a program passes its tests, else why not. Raises SandboxError if the machine
        failed."""
        return run_job(job, timeout_s=self.timeout_s, memory_mb=self.memory_mb)


class Code(Programs):
    """`entry_point` and `test` (HumanEval's `check`, or plain assertions) come from the row; where
    the row has a `code` prompt, an answer that does not define the entry point is treated as the
    body that completes it."""

    metric: ClassVar[str] = "pass@1"
    needs: ClassVar[tuple[str, ...]] = ("test",)

    name: Literal["code"]

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        prompt, entry_point = reference.get("code"), reference.get("entry_point")
        try:
            written = solution(texts[0], prompt, entry_point)
        except (ValueError, RecursionError, MemoryError, SyntaxError) as error:
            return Score(
                0.0, f"no program can be extracted from the answer: {type(error).__name__}"
            )
        # HumanEval's tests may use other functions that the prompt defines (HumanEval/50).
        prelude = f"{prompt}    pass\n" if prompt is not None else ""
        # Both the function and the tests may use the imports of the set-up.
        tested = entry_point or _only_called(_text(reference["test"]))
        job = SandboxJob(
            f"{written}\n{_text(reference.get('setup'))}", tests(reference), prelude, tested
        )
        fault = self.run(job)
        return Score(float(fault is None), fault or "passed")


def solution(text: str, prompt: str | None, entry_point: str | None) -> str:
    """Extract the entry point and its dependencies from an answer, as evalplus does; a bare body is
    appended to the prompt."""
    from evalplus import sanitize as evalplus

    evalplus.code_extract = longest_program  # its own takes cubic time and has no limit
    if (
        prompt is not None
        and entry_point is not None
        and not re.search(rf"\bdef\s+{re.escape(entry_point)}\b", text)
        and not _binds(longest_program(text), entry_point)
    ):
        text = prompt + _indented(_unfenced(text))
    return str(evalplus.sanitize(text, entry_point))


def _binds(program: str, name: str) -> bool:
    """Whether a program that is no function's body binds a name where evalplus looks for it: at its
    top, by an import, a class or an assignment."""
    try:
        tree = ast.parse(program)
    except SyntaxError:
        return False
    statements = list[ast.AST](tree.body)
    for node in statements:
        if isinstance(node, ast.Return):
            return False
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            statements += ast.iter_child_nodes(node)
    return any(name in _bound(node) for node in tree.body)


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef():
            return {node.name}
        case ast.Assign(targets=[ast.Name(id=name), *_]) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Import() | ast.ImportFrom():
            return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return set()


def _only_called(test: str) -> str | None:
    """The function of a test that calls no other: MBPP/126 asks for a function `sum`."""
    called = {
        node.func.id
        for node in ast.walk(ast.parse(test))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return called.pop() if len(called) == 1 else None


def tests(reference: Reference) -> str:
    """The test program that follows the solution; it runs to its last line if all tests pass."""
    text = _text(reference["test"])
    needs_numpy = NUMPY if "numpy" in text else ""
    call = (
        f"\ncheck({reference['entry_point']})"
        if "def check(" in text and reference.get("entry_point")
        else ""
    )
    return f"{_text(reference.get('setup'))}\n{needs_numpy}{text}{call}"


def _text(lines: str | Sequence[str] | None) -> str:
    return lines if isinstance(lines, str) else "\n".join(lines or ())


def _unfenced(text: str) -> str:
    """The first fenced block of a text, or all of it."""
    block = re.search(r"```(?:[Pp]y(?:thon)?3?)?[ \t]*\n(.*?)(?:```|\Z)", text, re.DOTALL)
    return block.group(1) if block else text


def _indented(body: str) -> str:
    """Indent a function body if it is not: models asked for a body alone often omit the
    indentation."""
    first = next((line for line in body.split("\n") if line.strip()), "")
    if first[:1].isspace():
        return body
    return "\n".join(f"    {line}" if line.strip() else line for line in body.split("\n"))
