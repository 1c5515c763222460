"""Shared by the drafters with a feature-level head: the features they read and how the head is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.drafters.base import Drafter

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class FeatureLevel(Drafter):
    """A head of EAGLE's architecture: it reads the target's final-norm states and predicts the next one."""

    model_role = "eagle"
    has_q = True

    @classmethod
    def load(cls, source: str, target: LanguageModel, *, revision: str | None, dtype: str, device: str,
             trust_remote_code: bool = False) -> Head:
        from methods.heads.head import load_eagle

        return load_eagle(source, target, revision=revision, dtype=dtype, device=device)

    def features(self, model: Head) -> tuple[int, ...]:
        from methods.heads.eagle import FEATURES

        return FEATURES
