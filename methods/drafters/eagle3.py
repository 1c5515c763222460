"""EAGLE-3: a head that fuses layers of the target drafts a dynamic tree from a reduced vocabulary.

Source: Li et al. 2025, "EAGLE-3"; the tree is that of EAGLE-2. Candidates are deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from methods.drafters._eagle import DynamicDrafter

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel
    from methods.heads.head import Head


class Eagle3(DynamicDrafter):
    model_role = "eagle3"

    @classmethod
    def load(cls, source: str, target: LanguageModel, *, revision: str | None, dtype: str, device: str,
             trust_remote_code: bool = False) -> Head:
        from methods.heads.head import load_eagle3

        return load_eagle3(source, target, revision=revision, dtype=dtype, device=device)

    def features(self, model: Head) -> tuple[int, ...]:
        return model.features
