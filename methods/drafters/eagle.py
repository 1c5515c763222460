"""Drafters with a trained head of the EAGLE family: EAGLE, EAGLE-2, HASS, EAGLE-3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, NonNegativeInt

from methods.drafters.base import (
    Branches,
    Drafter,
    DraftSettings,
    Proposer,
    StaticDrafter,
    TokenRows,
)
from methods.sampling import Sampling
from methods.trees import static
from methods.trees.dynamic import TreeShape
from methods.trees.shaped import ShapedTree

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class FeatureLevel(Drafter):
    """A head of EAGLE's architecture: it reads the target's final-norm states and predicts the next
    one."""

    model_role = "eagle"
    loader = "head.load_eagle"


class Eagle(FeatureLevel, StaticDrafter):
    """EAGLE: a feature-level head that drafts a static tree. Source: Li et al. 2024, "EAGLE",
    section 4.1."""

    tree: static.TreeOption = "eagle_25"

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        return self.shape.inner

    def start(
        self,
        target: LanguageModel,
        model: Head,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        from methods.drafters._heads import ShapedProposer

        return ShapedProposer(
            model, settings, rows, slots, ShapedTree(self.shape, settings.sampling)
        )


class _DynamicDrafter(Branches):
    """Options of a dynamic tree; see methods/trees/dynamic.py.

    tree   dynamic; chain: one beam, draft.length tokens; sampled: siblings drawn at T > 0,
           draft.length deep.
    total  nodes of the dynamic tree, root included.
    depth  rounds of expansion after the root's; the draft length K is depth + 1.
    top_k  children per node, and nodes expanded per round.

    The limits lie far above what pays: a round is a forward of the head, a node a row of the
    target's.
    """

    has_q = True
    tree: Literal["dynamic", "chain", "sampled"] = "dynamic"
    total: int = Field(60, ge=2, le=4096)
    depth: int = Field(7, ge=0, le=1023)
    top_k: int = Field(10, ge=1, le=1024)

    def is_chain(self) -> bool:
        return self.tree == "chain" or (
            self.tree == "sampled" and max(self.branching, default=1) == 1
        )

    @property
    def idle(self) -> frozenset[str]:
        drawn, grown = {"branching", "replacement"}, {"total", "depth", "top_k"}
        return frozenset({"chain": drawn | grown, "sampled": grown, "dynamic": drawn}[self.tree])

    def samples(self, sampling: Sampling) -> bool:
        return self.tree == "sampled" and not sampling.greedy

    def shape(self, length: int) -> TreeShape:
        """Size of the drafted tree for draft.length K."""
        if self.tree == "chain":
            return TreeShape(length + 1, length - 1, 1)
        return TreeShape(self.total, self.depth, self.top_k)

    def nodes(self, length: int) -> int:
        return self.regular(length).nodes if self.tree == "sampled" else self.shape(length).nodes

    def num_uniforms(self, length: int) -> int:
        return self.nodes(length) - 1 if self.tree == "sampled" else 0

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        if self.is_chain():
            return (1,) * length
        if self.tree == "sampled":
            return self.regular(length).inner
        shape = self.shape(length)
        return (1, *[shape.top_k] * shape.depth)

    def start(
        self,
        target: LanguageModel,
        model: Head,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        from methods.drafters._heads import DynamicProposer, ShapedProposer

        if self.tree == "sampled":
            tree = ShapedTree(
                self.regular(settings.length),
                settings.sampling,
                self.samples(settings.sampling),
                self.replacement,
            )
            return ShapedProposer(model, settings, rows, slots, tree)
        return DynamicProposer(model, settings, rows, slots, self.shape(settings.length))


class Eagle2(FeatureLevel, _DynamicDrafter):
    """EAGLE-2: the head of EAGLE drafts a dynamic tree. Source: Li et al. 2024, "EAGLE-2"."""


class Hass(FeatureLevel, _DynamicDrafter):
    """HASS: EAGLE-2 with a head trained on its own drafts. Source: Zhang et al. 2024, "Learning
    Harmonized Representations for Speculative Sampling"; only the training differs."""

    model_role = "hass"
    depth: NonNegativeInt = 5  # the authors' tree


class Eagle3(_DynamicDrafter):
    """EAGLE-3: a head that fuses layers of the target drafts a dynamic tree from a reduced
    vocabulary.

    Source: Li et al. 2025, "EAGLE-3"; the tree is that of EAGLE-2. Candidates are deterministic."""

    model_role = "eagle3"
    loader = "head.load_eagle3"
