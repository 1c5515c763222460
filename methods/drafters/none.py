"""No drafter: autoregressive decoding, the baseline, in the same loop and engine as every method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from methods.drafters.base import Drafter, DraftSettings, Proposer
from methods.engine.device import upload
from methods.trees.draft import Draft

if TYPE_CHECKING:  # transformers is slow to import, and a command is checked before anything is loaded
    from methods.engine.language_model import LanguageModel


class NoDrafter(Drafter):
    """Proposes the root alone, so every cycle commits exactly one token, chosen by the target."""

    @property
    def chain(self) -> bool:
        return True

    def nodes(self, length: int) -> int:
        return 1

    def start(self, target: LanguageModel, model: None, settings: DraftSettings,
              rows: list[list[int]], slots: int) -> Proposer:
        return _Root(target.device)


class _Root(Proposer):
    def __init__(self, device: torch.device):
        self.device = device

    def propose(self, rows: list[list[int]], u: Tensor) -> Draft:
        return Draft.of_chain(upload([row[-1:] for row in rows], self.device))
