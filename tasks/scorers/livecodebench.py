"""LiveCodeBench (Jain et al. 2024, arXiv:2403.07974): its public and hidden tests, run in the
sandbox.

A test either feeds standard input and compares the output, or calls a method of `Solution` with
JSON arguments.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from tasks.base import Reference, Score, TaskError
from tasks.sandbox.run import SandboxJob
from tasks.scorers.code import Programs

PRELUDE = """
import sys, io, json, math, collections, itertools, functools, heapq, bisect, string, random, re
from typing import *
from collections import *
from itertools import *
from functools import *
from heapq import *
from bisect import *
from math import *
sys.setrecursionlimit(10000)
"""

BY_INPUT = """
_shown = run_script({code!r}, {stdin!r})
def _lines(text): return [line.split() for line in text.strip().split("\\n")]
assert _lines(_shown) == _lines({wanted!r}), "wrong output"
"""

BY_CALL = """
import json
_call = getattr(Solution(), {name!r}) if "Solution" in globals() else globals()[{name!r}]
_found = _call(*[json.loads(line) for line in {arguments!r}.split("\\n")])
_found = list(_found) if isinstance(_found, tuple) else _found
assert _found == json.loads({wanted!r}), "wrong result"
"""


class LiveCodeBench(Programs):
    metric: ClassVar[str] = "pass@1"
    needs: ClassVar[tuple[str, ...]] = ("public_test_cases",)

    name: Literal["livecodebench"]

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        """1 if every test passes; tests after the first failure are not run. Raises TaskError for
        unreadable tests."""
        cases = read_tests(reference["public_test_cases"]) + read_tests(
            reference.get("private_test_cases") or "[]"
        )
        name = json.loads(reference.get("metadata") or "{}").get("func_name")
        code = PRELUDE + answer_code(texts[0])
        for number, case in enumerate(cases, start=1):
            if (error := self.run(_job(code, case, name))) is not None:
                return Score(0.0, f"test {number} of {len(cases)}: {error}")
        return Score(1.0, "passed")


def _job(code: str, case: Mapping[str, Any], name: str | None) -> SandboxJob:
    if case["testtype"] == "stdin":
        return SandboxJob(
            "", BY_INPUT.format(code=code, stdin=case["input"], wanted=case["output"])
        )
    return SandboxJob(
        code,
        BY_CALL.format(arguments=case["input"], wanted=case["output"], name=name),
        entry_point=name,
    )


def answer_code(text: str) -> str:
    """The last fenced block of the answer, as in LiveCodeBench; the whole answer if it has none."""
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.DOTALL)
    return blocks[-1] if blocks else text


def read_tests(text: str) -> list[dict[str, Any]]:
    """Parse tests: JSON, or (hidden tests) JSON text pickled, compressed and in base64. Only text
    is unpickled."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return json.loads(_OnlyText(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load())
    except (
        zlib.error,
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        EOFError,
    ) as error:
        raise TaskError(f"livecodebench: these tests cannot be read: {error}") from error


class _OnlyText(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(
            f"{module}.{name} in a file of tests; only text is read from it"
        )
