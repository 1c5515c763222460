"""The kinds of heads that can be trained, by the name of the pair's part they become."""

from __future__ import annotations

from methods.training.heads.base import HeadTrainer
from methods.training.heads.eagle import EagleTrainer
from methods.training.heads.eagle3 import Eagle3Trainer
from methods.training.heads.medusa import MedusaTrainer

KINDS: dict[str, type[HeadTrainer]] = {
    "eagle3": Eagle3Trainer, "eagle": EagleTrainer, "hass": EagleTrainer, "medusa": MedusaTrainer}
