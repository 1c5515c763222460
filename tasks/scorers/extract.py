"""The longest part of an answer that is Python: what `evalplus.sanitize.code_extract` finds, in
bounded time.

evalplus parses every run of lines, in cubic time: 400 lines of `x` take a minute. Here a parse that
fails says how many other runs fail as well. The work is counted in lines, so that an answer's score
does not depend on the machine."""

from __future__ import annotations

import ast
import codeop
from itertools import accumulate

MOST_PARSED = 200_000
"""Lines parsed, each as often as it is: two to four seconds. The longest program found by then
counts."""
_FLAGS = ast.PyCF_ONLY_AST | codeop.PyCF_ALLOW_INCOMPLETE_INPUT  # type: ignore[attr-defined]
_OPEN = ("was never closed", "unterminated triple-quoted")


def longest_program(text: str) -> str:
    """The lines that parse and hold most lines that are not blank; the first of those as long, the
    first line where there are none. As evalplus, it leaves out programs of one line. Raises
    ValueError for a null byte, RecursionError and MemoryError."""
    search = _Search(text.split("\n"))
    first, last = search.run()
    return "\n".join(search.lines[first : last + 1])


class _Search:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._filled = [0, *accumulate(bool(line.strip()) for line in lines)]
        self._left = MOST_PARSED

    def run(self) -> tuple[int, int]:
        """First and last line of the program."""
        best, span = 0, (0, 0)
        for first in range(len(self.lines)):
            last = len(self.lines) - 1
            while last > first and self._size(first, last) > best and self._left > 0:
                before = self._last_before(first, last)
                if before is None:
                    best, span = self._size(first, last), (first, self._earliest(first, last))
                    break
                last = before
        return span

    def _size(self, first: int, last: int) -> int:
        return self._filled[last + 1] - self._filled[first]

    def _earliest(self, first: int, last: int) -> int:
        """The first line at which a program of this size may end."""
        ends = (
            end
            for end in range(first + 1, last)
            if self._size(first, end) == self._size(first, last)
        )
        return next((end for end in ends if self._last_before(first, end) is None), last)

    def _last_before(self, first: int, last: int) -> int | None:
        """None where these lines parse; else the last line before `last` at which a program from
        `first` may end."""
        error = self._error(first, last)
        if error is None:
            return None
        if _is_unfinished(error):
            # A bracket or string that is open at the end was open at every line since it began.
            opened = self._error(first, last, flags=ast.PyCF_ONLY_AST)
            is_open = opened is not None and any(sign in str(opened.msg) for sign in _OPEN)
            return first + (opened.lineno or 0) - 2 if opened is not None and is_open else last - 1
        # The parser refused a token before the end: whatever else follows that token, it is
        # refused.
        refused = first + (error.lineno or 1) - 1
        sooner = self._error(first, refused) if refused < last else None
        return last - 1 if sooner is None or _is_unfinished(sooner) else refused - 1

    def _error(self, first: int, last: int, flags: int = _FLAGS) -> SyntaxError | None:
        text = "\n".join(self.lines[first : last + 1])
        try:
            compile(text, "<answer>", "exec", flags)
        except SyntaxError as error:
            self._left -= (error.lineno or 0) + 1
            return error
        self._left -= last - first + 1
        return None


def _is_unfinished(error: SyntaxError) -> bool:
    return "incomplete input" in str(error.msg)
