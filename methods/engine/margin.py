"""How near the target was to another token: what rounding can change, and what it cannot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from methods.engine.language_model import LanguageModel


@torch.inference_mode()
def next_logits(target: LanguageModel, ids: Sequence[int]) -> Tensor:
    """[V] raw logits behind the tokens `ids`, float32."""
    return target.prefill([list(ids)], target.new_cache(1, len(ids) + 1)).logits[0, 0].float()


def top2_margin(logits: Tensor) -> float:
    """Difference of the two largest logits [V]."""
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


def mass_between(probs: Tensor, first: int, second: int) -> float:
    """Probability [V] of the tokens whose ids lie strictly between two ids.

    A token is drawn where the distribution function F passes a random number. So two roundings of F
    can draw both ids from the same number only if they differ by at least this much
    somewhere. Logits that move by at most ε move F by at most ε / (2T): F is weighted by F(1 - F) ≤
    1/4, and the two sides move apart by at most 2ε / T."""
    low, high = sorted((first, second))
    return float(probs[low + 1 : high].double().sum())
