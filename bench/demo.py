"""`python -m bench.demo`: one prompt answered losslessly and by MARS, on the same drafts: right or
wrong, tokens, cycles, and why each token was kept.

The prompt is the first of a few whose answer the relaxation changed. Without a terminal, marks
stand for the colours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from bench.cli.command import run_command
from bench.config.errors import ConfigError
from bench.run.answer import context, limits_of, stream_name
from bench.run.console import console
from bench.run.models import ModelPool
from bench.run.one_cell import open_cell
from methods.decode import Request, text_of
from methods.rules import walk
from methods.trace import generate_traced
from results.store.traces import EMITTED, Clause

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.batch import Generation
    from methods.decode import Limits
    from methods.method import Method
    from tasks.base import Prompt, Task

SETTING = ("drafter=model", "task=mini_gsm", "decoding.temperature=1")
RULES = {"lossless": ("rule=lossless",), "MARS": ("rule=mars", "rule.theta=0.9")}
"""Name -> what chooses the rule; the last one's answer is looked at for relaxation."""
TRIED = 8
"""Prompts whose answers are tried until relaxation shows."""
STYLES = {
    Clause.STRICT: ("green", "", "", "drafted, and the lossless test keeps it"),
    Clause.ARGMAX: (
        "yellow",
        "(",
        ")",
        "drafted, the lossless test rejects it, but it is the target's first choice",
    ),
    Clause.RELAXED: ("bold white on red", "[", "]", "drafted, and kept by the relaxation alone"),
    Clause.DRAWN: ("bright_blue", "<", ">", "drawn by the target"),
}
"""Clause -> colour, the marks in its place, meaning."""
Token = tuple[int, Clause]
"""A token of an answer, and how it came."""


@dataclass(frozen=True)
class Shown:
    """The answer of one rule."""

    name: str
    tokens: Sequence[Token]
    cycles: int
    is_right: bool
    result: str | None

    def heading(self) -> str:
        """`MARS: right (4), 44 tokens in 12 cycles: 3.7 per cycle`; the first token is of none."""
        verdict = "right" if self.is_right else "WRONG"
        result = "" if self.result is None else f" ({self.result})"
        kept = (len(self.tokens) - 1) / max(self.cycles, 1)
        return (
            f"{self.name}: {verdict}{result}, {len(self.tokens)} tokens in {self.cycles} cycles: "
            f"{kept:.1f} per cycle"
        )

    def count(self, clause: Clause) -> int:
        return sum(how == clause for _, how in self.tokens)


def answer(method: Method, request: Request, limits: Limits) -> list[Token]:
    """Decode one prompt; the tokens of its answer. The first one is drawn, from the prefill."""
    return tokens_of(_decoded(method, request, limits))


def _decoded(method: Method, request: Request, limits: Limits) -> Generation:
    [generation] = generate_traced(method, [request], limits)
    return generation


def tokens_of(generation: Generation) -> list[Token]:
    """The tokens of a traced answer."""
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


def marked(tokens: Sequence[Token], text_of_token: Callable[[int], str], is_plain: bool) -> Text:
    """An answer, each token in the colour of its clause or, `is_plain`, between its marks."""
    parts = []
    for token, clause in tokens:
        style, before, after, _ = STYLES[clause]
        text = text_of_token(token)
        parts.append((f"{before}{text}{after}" if is_plain else text, style))
    return Text.assemble(*parts)


def legend(answers: Sequence[Shown], is_plain: bool) -> Text:
    """A line for each clause: how many tokens of each answer, and what it means."""
    width = max(len(shown.name) for shown in answers) + 2
    text = Text("".join(f"{shown.name:>{width}}" for shown in answers) + "\n")
    for clause, (style, before, after, meaning) in STYLES.items():
        counts = "".join(f"{shown.count(clause):>{width}}" for shown in answers)
        mark = f"{before}…{after}" if is_plain else "  "
        text.append_text(Text.assemble(f"{counts}  ", (f"{mark:3}", style), f" {meaning}\n"))
    return text


def shown(
    name: str, cell: Cell, method: Method, task: Task, prompt: Prompt
) -> tuple[Shown, Request]:
    """The answer of a rule to a prompt, scored, and what was asked."""
    target, limits = method.target, limits_of(cell, method.target, task)
    request = Request(context(target, prompt, []), stream_name(cell, task, prompt, 0))
    generation = _decoded(method, request, limits)
    text = text_of(
        generation,
        limits.stop,
        target,
        opens=bool(prompt.turns),
        think_end=limits.think_end,
    )
    score = task.score(prompt, [text])
    cycles = len(generation.accepted)
    return Shown(name, tokens_of(generation), cycles, score.value == 1, score.answer), request


def demo() -> None:
    """Print the answers to the first prompt of a few that relaxation changed, or the last one."""
    pool = ModelPool()
    opened = {name: open_cell((*SETTING, *rule), pool) for name, rule in RULES.items()}
    cell, method = opened["MARS"]
    task, target = cell.load_task(), method.target
    for prompt in task.prompts(TRIED, cell.seed):
        mars, request = shown("MARS", cell, method, task, prompt)
        if mars.count(Clause.RELAXED):
            break
    lossless, _ = shown("lossless", *opened["lossless"], task, prompt)
    terminal = console()
    is_plain = not terminal.is_terminal or terminal.no_color
    terminal.print(
        Text(f"python -m bench {' '.join((*SETTING, *RULES['MARS']))}, prompt {prompt.id}", "dim")
    )
    terminal.print(Text(target.decode(request.input_ids), "dim"), soft_wrap=True)
    for each in (lossless, mars):
        terminal.print(Text(f"\n{each.heading()}", "bold"))
        text = marked(
            each.tokens,
            lambda token: target.tokenizer.decode([token], skip_special_tokens=False),
            is_plain,
        )
        terminal.print(text, soft_wrap=True)
    terminal.print(Text("\n"), legend((lossless, mars), is_plain), sep="")
    terminal.print(
        f"The relaxation alone kept {mars.count(Clause.RELAXED)} of MARS' {len(mars.tokens)} "
        "tokens. One prompt shows how it works, not what it gains: docs/findings.md has that.",
        soft_wrap=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""

    def body() -> None:
        words = sys.argv[1:] if argv is None else argv
        if words:
            raise ConfigError(
                f"{words[0]}: the demo takes no options. Answers of other methods: python -m bench "
                "method=NAME n=4, then python -m bench.view"
            )
        demo()

    return run_command(body)


if __name__ == "__main__":
    sys.exit(main())
