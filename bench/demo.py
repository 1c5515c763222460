"""`python -m bench.demo`: one figure and one answer with coloured tokens, from the embedded pair, in two minutes.

The figure is MARS' accuracy and speedup against its threshold on four prompts: an example of the output, too few to
conclude anything from. The answer, the first one that relaxation changed, shows how each of its tokens came, and the
last lines say what that means."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from bench.__main__ import main as run_bench
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

FIGURE = ("+sweep=mars_theta", "method=mars", "task=mini_gsm", "n=4", "draft.length=7",
          "rule.theta=0.5,0.8,0.9,0.95,1",
          "output.dir=outputs/demo", "store.dir=outputs/demo/store")
ANSWER = ("method=mars", "task=mini_gsm", "decoding.temperature=1", "rule.theta=0.7", "output.dir=outputs/demo")
TRIED = 8
"""Prompts whose answers are tried until relaxation shows."""
STYLES = {
    Clause.STRICT: ("green", "drafted, and the lossless test keeps it"),
    Clause.ARGMAX: ("yellow", "drafted, the lossless test rejects it, but it is the target's first choice"),
    Clause.RELAXED: ("bold white on red", "drafted, and kept by the relaxation alone"),
    Clause.DRAWN: ("bright_blue", "drawn by the target"),
}

NEXT = """\
  python -m bench report=my_rule rule=mars               is it a gain? With your rule: docs/adding_a_rule.md
  python -m bench report=workload task.path=FILE.jsonl   is it worth it on your own prompts? docs/options.md"""


def emitted(cycles: Sequence[Cycle], count: int) -> list[Node]:
    """The first `count` tokens of an answer in order. The first one, the root of the first cycle, is drawn."""
    nodes = [replace(cycle.nodes[0], clause=Clause.DRAWN) for cycle in cycles[:1]]
    for cycle in cycles:
        nodes += [node for node in cycle.nodes if node.clause in KEPT] + [cycle.follow]
    return nodes[:count]


def coloured(nodes: Sequence[Node]) -> Text:
    """An answer, each token in the style of its clause."""
    return Text.assemble(*((node.text, STYLES[node.clause][0]) for node in nodes))


def legend(nodes: Sequence[Node]) -> Text:
    """A line for each clause: how many tokens, and what it means."""
    counts = {clause: sum(node.clause == clause for node in nodes) for clause in STYLES}
    return Text("\n").join(Text.assemble((f" {counts[clause]:3} ", style), f"  {meaning}")
                           for clause, (style, meaning) in STYLES.items())


def takeaway(nodes: Sequence[Node]) -> str:
    """What an answer shows of the question whether a relaxed rule is better, in one sentence."""
    argmax, relaxed = (sum(node.clause == clause for node in nodes) for clause in (Clause.ARGMAX, Clause.RELAXED))
    return (f"Of these {len(nodes)} tokens, {argmax + relaxed} would not stand here without the relaxed rule: {argmax} "
            f"are the target's first choice, as greedier decoding gives, {relaxed} are not even that. Such tokens buy "
            "the speed; what they cost, one answer cannot tell.")


def answer(method: Method, request: Request, limits: Limits, caption: dict[str, str]) -> list[Node]:
    """Decode one prompt; the tokens of its answer."""
    recorder = CycleRecorder(method.target, request.input_ids, caption)
    [generation] = generate(method, [request], limits, observers=[recorder])
    return emitted(recorder.cycles, len(generation.output_ids))


def shown_answer(opened: OpenCell) -> tuple[Request, dict[str, str], list[Node]]:
    """The first answer of a few that relaxation changed, with its request and caption; the last one if none was."""
    for number in range(TRIED):
        prompt = opened.prompt(number)
        request, caption = opened.request(prompt), opened.caption(prompt)
        nodes = answer(opened.method, request, opened.limits, caption)
        if any(node.clause == Clause.RELAXED for node in nodes):
            break
    return request, caption, nodes


def demo() -> int:
    """Run the sweep, print the answer. Returns the exit status."""
    status = run_bench(FIGURE)
    opened, terminal = OpenCell.compose(ANSWER), console()
    request, caption, nodes = shown_answer(opened)
    terminal.print(Text(opened.method.target.decode(request.input_ids), "dim"), soft_wrap=True)
    terminal.print(coloured(nodes), soft_wrap=True)
    terminal.print(Text("\n" + ", ".join(f"{name} {value}" for name, value in caption.items()), "dim"))
    terminal.print(legend(nodes))
    terminal.print(Text("\n" + takeaway(nodes), "bold"), soft_wrap=True)
    terminal.print(NEXT, soft_wrap=True)
    return status


def main() -> int:
    """Exit status: as of `python -m bench`."""
    return run_command(demo)


if __name__ == "__main__":
    sys.exit(main())
