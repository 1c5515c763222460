"""EAGLE: a feature-level head that drafts a static tree. Source: Li et al. 2024, "EAGLE", section 4.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.drafters._eagle import FeatureLevel
from methods.drafters.base import DraftSettings, Proposer
from methods.trees import static

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class Eagle(FeatureLevel):
    """tree: name of a shape in methods/trees/shapes, or path of a YAML file."""

    tree: static.TreeOption = "eagle_25"

    @property
    def idle(self) -> frozenset[str]:
        return frozenset({"length"})

    def nodes(self, length: int) -> int:
        return static.load(self.tree).nodes

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        return static.load(self.tree).inner

    def start(self, target: LanguageModel, model: Head, settings: DraftSettings, rows: list[list[int]],
              slots: int) -> Proposer:
        from methods.drafters._heads import StaticProposer

        return StaticProposer(model, settings, rows, slots, static.load(self.tree))
