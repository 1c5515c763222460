"""`python -m bench.cycle [--prompt I] [--cycle N] [KEY=VALUE …]`: decode one prompt and record one of its cycles.

The overrides are those of `python -m bench`; `python -m plots tree` draws what this writes. Default of --cycle:
the cycle with most relaxed tokens; ties go to a cycle with a rejection, then to most accepted tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from bench.commands.command import run_command
from bench.commands.open_cell import OpenCell
from methods.decode import Limits, Request, generate
from methods.observer import Observer
from methods.rules import walk
from results.store.errors import Arguments
from results.store.files import check_writable
from results.store.traces import KEPT, Clause, Cycle, Node

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method
    from methods.rules.verification import Verification
    from methods.rules.walk import Decision, Walk

BEFORE = 60
"""Tokens of context stored with a cycle."""


class CycleRecorder(Observer):
    """An observer that records every cycle of a batch of one.

    ids       the committed tokens so far, the prompt's first.
    settings  what runs, for the caption.
    """

    def __init__(self, target: LanguageModel, ids: list[int], settings: dict[str, str]):
        self.target, self.ids, self.settings = target, list(ids), settings
        self.cycles: list[Cycle] = []

    def on_cycle(self, v: Verification, decision: Decision, path: Walk, token: Tensor, u: Tensor,
                 requests: Sequence[int]) -> None:
        nodes = tree_nodes(v, decision, path, self.target)
        self.ids.append(nodes[0].token)
        before, drawn = piece(self.target, self.ids[-BEFORE:]), self._drawn(v, int(path.last), int(token))
        self.cycles.append(Cycle(self.settings, len(self.cycles) + 1, before, nodes, drawn))
        self.ids += [node.token for node in nodes if node.clause in KEPT]

    def _drawn(self, v: Verification, last: int, token: int) -> Node:
        p = probabilities(v)[0, last]
        parent = int(v.draft.valid[0, :last].sum())  # its index among the valid nodes
        rank = int((p > p[token]).sum())
        return Node(token, piece(self.target, [token]), parent, None, float(p[token]), rank, Clause.DRAWN)


def tree_nodes(v: Verification, decision: Decision, path: Walk, target: LanguageModel) -> tuple[Node, ...]:
    """The valid nodes of the only row, with their probabilities and clauses."""
    draft, p = v.draft, probabilities(v)
    parents = draft.parents.expand(draft.tokens.shape)[0].tolist()
    q = None if draft.q is None else draft.q[0].tolist()
    p_token, rank = v.of_token(p)[0].tolist(), _ranks(v, p)
    labels = [Clause(walk.Clause(code).word) for code in walk.clauses(v, decision, path)[0].tolist()]
    nodes: list[Node] = []
    tokens, valid = draft.tokens[0].tolist(), draft.valid[0].tolist()
    place = {-1: -1}  # node -> index among the valid nodes
    for i in (i for i, ok in enumerate(valid) if ok):
        place[i] = len(nodes)
        drafted = i > 0
        nodes.append(Node(tokens[i], piece(target, [tokens[i]]), place[parents[i]], q[i] if q and drafted else None,
                          p_token[i] if drafted else None, rank[i] if drafted else None, labels[i]))
    return tuple(nodes)


def probabilities(v: Verification) -> Tensor:
    """[1, N, V] the target's distribution at the decoding temperature; its raw softmax at temperature 0."""
    return v.logits.softmax(-1) if v.sampling.greedy else v.p


def _ranks(v: Verification, p: Tensor) -> list[int]:
    """Rank of each node's token under the target at its parent: the number of more probable tokens."""
    return (v.at_parent(p) > v.of_token(p)[..., None]).sum(-1)[0].tolist()


def piece(target: LanguageModel, ids: list[int]) -> str:
    """Decode token ids, special tokens included."""
    return target.tokenizer.decode(ids, skip_special_tokens=False)


def record(method: Method, request: Request, limits: Limits, settings: dict[str, str]) -> list[Cycle]:
    """Decode one answer and return all its cycles."""
    recorder = CycleRecorder(method.target, request.input_ids, settings)
    generate(method, [request], limits, observers=[recorder])
    return recorder.cycles


def most_telling(cycles: Sequence[Cycle]) -> Cycle:
    """Prefer most relaxed tokens, then a rejection, then most accepted tokens, then the earliest."""
    return max(cycles, key=lambda cycle: (cycle.relaxed, not cycle.complete, cycle.accepted, -cycle.number))


def capture(overrides: Sequence[str], prompt: int, number: int | None) -> int:
    """Decode the prompt and write one of its cycles. Raises ValueError, ModelError, TaskError."""
    opened = OpenCell.compose(overrides)
    check_writable(opened.output, "output.dir")
    chosen = opened.prompt(prompt)
    cycles = record(opened.method, opened.request(chosen), opened.limits, opened.caption(chosen))
    if number is not None and not 1 <= number <= len(cycles):
        raise ValueError(f"--cycle {number}: the answer has {len(cycles)} cycles; give 1 to {len(cycles)}")
    if not cycles:
        raise ValueError(f"--prompt {prompt}: the answer ended before its first cycle; give another prompt")
    cycle = most_telling(cycles) if number is None else cycles[number - 1]
    file = cycle.write(opened.output / "cycle.json")
    print(f"{file}: cycle {cycle.number}, {len(cycle.nodes)} nodes, {cycle.accepted} accepted, {cycle.relaxed} of them "
          f"by relaxation; draw it with: python -m plots tree {file}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(
        prog="python -m bench.cycle", usage="%(prog)s [-h] [--prompt I] [--cycle N] [KEY=VALUE ...]",
        description="Decode one prompt and record one of its cycles. KEY=VALUE are the overrides of `python -m bench`; "
                    "`python -m plots tree` draws what this writes.")
    parser.add_argument("--prompt", type=int, default=0, metavar="I", help="index of the task's prompt, from 0")
    parser.add_argument("--cycle", type=int, metavar="N",
                        help="index of the cycle, from 1; default: the one with most relaxed tokens")
    args, overrides = parser.parse_known_intermixed_args(argv)
    return run_command(lambda: capture(overrides, args.prompt, args.cycle))


if __name__ == "__main__":
    sys.exit(main())
