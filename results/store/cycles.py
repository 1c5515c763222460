"""Record of one draft–verify cycle: the draft tree, the probabilities of its tokens, and which were kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from results.store.clauses import KEPT, Clause
from results.store.files import replace_text
from results.store.records import from_json, json_text


class CycleError(ValueError):
    """A file that holds no cycle. The message is one line."""


@dataclass(frozen=True, slots=True)
class Node:
    """One token of a draft tree.

    token   token id
    text    the token as text
    parent  index of the parent node; -1 for the root
    draft   probability given the parent under the drafter; None where it has no distribution, and for the root
    target  the same under the target at the decoding temperature (at temperature 1 for greedy decoding)
    rank    place in the target's order of probability, from 0; None for the root
    clause  what became of the token
    """

    token: int
    text: str
    parent: int
    draft: float | None
    target: float | None
    rank: int | None
    clause: Clause


@dataclass(frozen=True, slots=True)
class Cycle:
    """One draft–verify round of an answer.

    settings  what ran, for the caption
    number    which cycle of the answer, from 1
    before    the text that ends with the root's token
    nodes     root first, parents before children, siblings in draft order
    follow    the token drawn after the kept path; its parent is the last kept node
    """

    settings: dict[str, str]
    number: int
    before: str
    nodes: tuple[Node, ...]
    follow: Node

    @property
    def accepted(self) -> int:
        """Draft tokens kept."""
        return sum(node.clause in KEPT for node in self.nodes)

    @property
    def relaxed(self) -> int:
        """Draft tokens kept that the lossless test rejects and that are not the target's argmax."""
        return sum(node.clause == Clause.RELAXED for node in self.nodes)

    @property
    def complete(self) -> bool:
        """Was the path kept to a leaf, so that the token after it is a bonus rather than a correction?"""
        return all(node.parent != self.follow.parent for node in self.nodes)

    def write(self, file: Path) -> Path:
        """Write the cycle as JSON; `read_cycle` reads it back. Returns the file."""
        replace_text(file, json_text(asdict(self), indent=1) + "\n")
        return file


def read_cycle(file: Path) -> Cycle:
    """The cycle in a file that `Cycle.write` wrote. Raises CycleError, one line."""
    try:
        raw = from_json(file.read_bytes())
        cycle = Cycle(raw["settings"], raw["number"], raw["before"], tuple(Node(**node) for node in raw["nodes"]),
                      Node(**raw["follow"]))
    except OSError as error:
        raise CycleError(f"{file}: cannot be read: {error.strerror}; python -m bench.cycle writes one") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CycleError(f"{file}: holds no cycle ({type(error).__name__}: {error}); "
                         "python -m bench.cycle writes one") from error
    for i, node in enumerate(cycle.nodes):
        in_order = node.parent == -1 if i == 0 else 0 <= node.parent < i
        if not in_order or node.clause not in list(Clause):
            raise CycleError(f"{file}: node {i} has parent {node.parent} and clause {node.clause}: parents come before"
                             f" their children, clauses are {', '.join(Clause)}")
    return cycle
