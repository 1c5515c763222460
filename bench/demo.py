"""`python -m bench.demo`: an answer of the embedded pair, each token in the colour that says how it came.

The answer is the first of a few that relaxation changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from bench.commands.command import run_command
from bench.commands.open_cell import OpenCell
from bench.cycle import CycleRecorder
from bench.run.console import console
from methods.decode import generate
from results.store.traces import KEPT, Clause

if TYPE_CHECKING:
    from methods.decode import Limits, Request
    from methods.method import Method
    from results.store.traces import Cycle, Node

ANSWER = ("method=mars", "task=mini_gsm", "decoding.temperature=1", "rule.theta=0.7")
TRIED = 8
"""Prompts whose answers are tried until relaxation shows."""
STYLES = {
    Clause.STRICT: ("green", "drafted, and the lossless test keeps it"),
    Clause.ARGMAX: ("yellow", "drafted, the lossless test rejects it, but it is the target's first choice"),
    Clause.RELAXED: ("bold white on red", "drafted, and kept by the relaxation alone"),
    Clause.DRAWN: ("bright_blue", "drawn by the target"),
}


def emitted(cycles: Sequence[Cycle], count: int) -> list[Node]:
    """The first `count` tokens of an answer in order. The first one, the root of the first cycle, is drawn."""
    nodes = [replace(cycle.nodes[0], clause=Clause.DRAWN) for cycle in cycles[:1]]
    for cycle in cycles:
        nodes += [node for node in cycle.nodes if node.clause in KEPT] + [cycle.follow]
    return nodes[:count]


def coloured(nodes: Sequence[Node]) -> Text:
    """An answer, each token in the style of its clause, and a line for each clause: how many tokens, what it means."""
    text = Text.assemble(*((node.text, STYLES[node.clause][0]) for node in nodes), "\n\n")
    for clause, (style, meaning) in STYLES.items():
        text.append_text(Text.assemble((f" {sum(node.clause == clause for node in nodes):3} ", style),
                                       f"  {meaning}\n"))
    return text


def answer(method: Method, request: Request, limits: Limits, caption: dict[str, str]) -> list[Node]:
    """Decode one prompt; the tokens of its answer."""
    recorder = CycleRecorder(method.target, request.input_ids, caption)
    [generation] = generate(method, [request], limits, observers=[recorder])
    return emitted(recorder.cycles, len(generation.output_ids))


def demo() -> None:
    """Print the first answer of a few that relaxation changed, or the last one, below its prompt and settings."""
    opened = OpenCell.compose(ANSWER)
    for number in range(TRIED):
        prompt = opened.prompt(number)
        request, caption = opened.request(prompt), opened.caption(prompt)
        nodes = answer(opened.method, request, opened.limits, caption)
        if any(node.clause == Clause.RELAXED for node in nodes):
            break
    terminal = console()
    terminal.print(Text(", ".join(f"{name} {value}" for name, value in caption.items()), "dim"))
    terminal.print(Text(opened.method.target.decode(request.input_ids), "dim"), soft_wrap=True)
    terminal.print(coloured(nodes), soft_wrap=True)


def main() -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    return run_command(demo)


if __name__ == "__main__":
    sys.exit(main())
