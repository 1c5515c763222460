"""The kinds of heads that can be trained, by the role they take in a pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from methods.training.heads.base import HeadTrainer
from methods.training.heads.cut import CutTrainer
from methods.training.heads.eagle import EagleTrainer
from methods.training.heads.eagle3 import Eagle3Trainer
from methods.training.heads.medusa import MedusaTrainer

TRAINERS: Mapping[str, type[HeadTrainer[Any, Any]]] = {
    "eagle3": Eagle3Trainer, "eagle": EagleTrainer, "hass": EagleTrainer, "medusa": MedusaTrainer,
    "draft": CutTrainer}
