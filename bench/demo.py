"""`python -m bench.demo`: an answer of the embedded pair, each token in the colour that says how it
came.

The answer is the first of a few that relaxation changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from bench.commands.command import run_command
from bench.commands.one_cell import open_cell
from bench.run.answer import context, limits_of, stream_name
from bench.run.console import console
from methods.decode import Request
from methods.rules import walk
from methods.trace import generate_traced
from results.store.traces import EMITTED, Clause

if TYPE_CHECKING:
    from methods.decode import Limits
    from methods.method import Method

ANSWER = ("method=mars", "task=mini_gsm", "decoding.temperature=1", "rule.theta=0.7")
TRIED = 8
"""Prompts whose answers are tried until relaxation shows."""
STYLES = {
    Clause.STRICT: ("green", "drafted, and the lossless test keeps it"),
    Clause.ARGMAX: (
        "yellow",
        "drafted, the lossless test rejects it, but it is the target's first choice",
    ),
    Clause.RELAXED: ("bold white on red", "drafted, and kept by the relaxation alone"),
    Clause.DRAWN: ("bright_blue", "drawn by the target"),
}
Token = tuple[int, Clause]
"""A token of an answer, and how it came."""


def answer(method: Method, request: Request, limits: Limits) -> list[Token]:
    """Decode one prompt; the tokens of its answer. The first one is drawn, from the prefill."""
    [generation] = generate_traced(method, [request], limits)
    assert generation.trace is not None
    columns = generation.trace.columns
    clauses = [Clause(walk.Clause(code).word) for code in columns.get("clause", ())]
    path = [
        token
        for token in zip(columns.get("token", ()), clauses, strict=True)
        if token[1] in EMITTED
    ]
    return [
        (generation.output_ids[0], Clause.DRAWN),
        *((int(token), clause) for token, clause in path),
    ]


def coloured(tokens: Sequence[Token], text_of: Callable[[int], str]) -> Text:
    """An answer, each token in the style of its clause, and a line for each clause: how many
    tokens, what it means."""
    text = Text.assemble(*((text_of(token), STYLES[clause][0]) for token, clause in tokens), "\n\n")
    for clause, (style, meaning) in STYLES.items():
        text.append_text(
            Text.assemble(
                (f" {sum(how == clause for _, how in tokens):3} ", style), f"  {meaning}\n"
            )
        )
    return text


def demo() -> None:
    """Print the first answer of a few that relaxation changed, or the last one, below its prompt
    and settings."""
    cell, method = open_cell(ANSWER)
    target, task = method.target, cell.load_task()
    limits = limits_of(cell, target, task)
    for prompt in task.prompts(TRIED, cell.seed):
        request = Request(context(target, prompt, []), stream_name(cell, task, prompt, 0))
        tokens = answer(method, request, limits)
        if any(clause == Clause.RELAXED for _, clause in tokens):
            break
    terminal = console()
    terminal.print(Text(f"{', '.join(ANSWER)}, prompt {prompt.id}", "dim"))
    terminal.print(Text(target.decode(request.input_ids), "dim"), soft_wrap=True)
    terminal.print(
        coloured(tokens, lambda token: target.tokenizer.decode([token], skip_special_tokens=False)),
        soft_wrap=True,
    )


def main() -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_command(demo)


if __name__ == "__main__":
    sys.exit(main())
