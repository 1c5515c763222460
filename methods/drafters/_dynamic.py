"""Options of the drafters that grow a dynamic tree with a trained head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.trees.dynamic import TreeShape

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class DynamicDrafter(Drafter):
    """Options of a dynamic tree; see methods/trees/dynamic.py.

    tree   dynamic, or chain: one beam, draft.length tokens.
    total  nodes of the dynamic tree, root included.
    depth  rounds of expansion after the root's; the draft length is depth + 1.
    top_k  children per node, and nodes expanded per round.

    The limits lie far above what pays: a round is a forward of the head, a node a row of the target's.
    """

    has_q = True
    tree: Literal["dynamic", "chain"] = "dynamic"
    total: int = Field(60, ge=2, le=4096)
    depth: int = Field(7, ge=0, le=1023)
    top_k: int = Field(10, ge=1, le=1024)

    @property
    def chain(self) -> bool:
        return self.tree == "chain"

    def shape(self, length: int) -> TreeShape:
        """Size of the drafted tree for draft.length K."""
        if self.tree == "chain":
            return TreeShape(length + 1, length - 1, 1)
        return TreeShape(self.total, self.depth, self.top_k)

    def nodes(self, length: int) -> int:
        return self.shape(length).nodes

    def start(self, target: LanguageModel, model: Head, settings: DraftSettings, rows: list[list[int]],
              slots: int) -> Proposer:
        from methods.drafters._eagle_proposer import DynamicProposer

        return DynamicProposer(model, settings, rows, slots, self.shape(settings.length))
