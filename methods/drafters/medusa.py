"""Medusa: heads on the target's last state draft a static tree, all depths at once and without a
draft cache.

Node "0.2" is the best token of head 0 followed by the third-best token of head 1. A head does not
see the tokens before its own, so all nodes of a depth share one draft distribution. Deterministic
candidates; q is the head's softmax. Source: Cai et al. 2024, "Medusa", sections 2.1.1 and 2.1.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import DraftSettings, Proposer, StaticDrafter, TokenRows
from methods.engine.device import upload
from methods.trees import static
from methods.trees.draft import Draft
from methods.trees.static import StaticTree

# transformers is slow to import, and a command is checked before anything is loaded
if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.heads.medusa import Medusa


class MedusaDrafter(StaticDrafter):
    """Its tree is no deeper than the number of heads."""

    model_role = "medusa"
    loader = "medusa.load_medusa"
    tree: static.TreeOption = "medusa_63"

    def forwards(self, length: int, levels: int) -> tuple[int, ...]:
        return (1,)

    def check_model(self, model: Medusa) -> None:
        if self.shape.max_depth > len(model.model):
            from methods.engine.source import ModelError

            raise ModelError(
                f"drafter.tree={self.tree} is {self.shape.max_depth} tokens deep and "
                f"{model.source} has {len(model.model)} heads; use a tree that is no deeper"
            )

    def start(
        self,
        target: LanguageModel,
        model: Medusa,
        settings: DraftSettings,
        rows: TokenRows,
        slots: int,
    ) -> Proposer:
        return _Heads(model, self.shape, settings, target.device)


class _Heads(Proposer):
    def __init__(
        self, model: Medusa, tree: StaticTree, settings: DraftSettings, device: torch.device
    ):
        self.model, self.settings, self.tree = model.model, settings, tree
        self.widest = max(tree.widths)
        self.shape = Draft.of_parents(
            torch.zeros(1, tree.nodes, dtype=torch.long, device=device),
            torch.tensor([tree.parents], device=device),
            max_depth=tree.max_depth,
        )
        # [N] the head that predicts the node's token
        self.above = (self.shape.depth[0] - 1).clamp(min=0)
        self.guess = self.above * self.widest + torch.tensor(tree.ranks, device=device)
        # [B, H] the state from which each row's root was predicted
        self.feature: Tensor | None = None

    def on_features(self, features: Tensor, kept: Sequence[Sequence[int]]) -> None:
        """Store the state of each row's last kept node; drafts of finished rows are ignored."""
        last = upload([nodes[-1] if len(nodes) else 0 for nodes in kept], features.device)
        self.feature = features[torch.arange(len(last), device=features.device), last]

    def keep(self, places: list[int]) -> None:
        assert self.feature is not None, "on_features comes first"
        self.feature = self.feature[places]

    def propose(self, rows: TokenRows, u: Tensor) -> Draft:
        heads = self.model(self.feature, self.tree.max_depth).float()  # [D, B, V]
        guesses = heads.topk(self.widest, -1).indices.transpose(0, 1).flatten(1)  # [B, D * widest]
        root = upload([row[-1] for row in rows], guesses.device)
        tokens = guesses[:, self.guess]
        tokens[:, 0] = root
        logits = q = None
        if self.settings.needs_q:
            # [B, N, V] in the context of each node's parent
            probs = heads.softmax(-1).transpose(0, 1)[:, self.above]
            q = probs.gather(-1, tokens[..., None])[..., 0]
            q[:, 0] = 1.0
            logits = heads.transpose(0, 1)[:, self.shape.depth[0].clamp(max=len(heads) - 1)]
        shape = self.shape
        return Draft(
            tokens,
            shape.parents,
            shape.ancestors,
            shape.depth,
            torch.ones_like(tokens, dtype=torch.bool),
            logits=logits,
            q=q,
            chain=self.tree.nodes == self.tree.max_depth + 1,
            width=self.widest,
            levels=shape.levels,
        )
