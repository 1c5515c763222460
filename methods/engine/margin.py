"""How near to a tie the target's choice of a token was."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.engine.language_model import LanguageModel
from methods.engine.team import together


@together(2)
@torch.inference_mode()
def top2_margin(target: LanguageModel, ids: Sequence[int]) -> float:
    """Difference of the two largest raw logits, float32, behind the tokens `ids`."""
    logits = target.prefill([list(ids)], target.new_cache(1, len(ids) + 1)).logits[0, 0].float()
    first, second = logits.topk(2).values.tolist()
    return float(first - second)
