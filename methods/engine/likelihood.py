"""NLL (nats) of the emitted tokens under the target's raw distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from methods.engine.language_model import LanguageModel
from methods.engine.team import together

PIECE = 128
"""Tokens of the answer in one forward: bounds the logits that are held at once."""


@together(3)
@torch.inference_mode()
def emitted_nll(target: LanguageModel, contexts: Sequence[Sequence[int]],
                answers: Sequence[Sequence[int]]) -> list[float]:
    """Nats of each answer in its context, summed over its tokens: -sum log p0(token), p0 the softmax of the raw logits
    (temperature 1, no top-k or top-p). One teacher-forced pass for the whole batch; an empty answer has 0."""
    longest = max(map(len, answers))
    if not longest:
        return [0.0] * len(answers)
    cache = target.new_cache(len(answers), max(map(len, contexts)) + longest + PIECE)
    logits = target.prefill([list(ids) for ids in contexts], cache).logits
    nll = _nll(logits, [list(ids[:1]) for ids in answers])
    for start in range(0, longest - 1, PIECE):
        pieces = [list(ids[start:-1][:PIECE]) for ids in answers]
        width = max(map(len, pieces))
        tokens = torch.tensor([piece + [0] * (width - len(piece)) for piece in pieces], device=target.device)
        logits = target.forward(tokens, cache).logits
        nll += _nll(logits, [list(ids[start + 1:start + 1 + PIECE]) for ids in answers])
        cache.commit(map(len, pieces))
    return nll.tolist()


@together(2)
@torch.inference_mode()
def top2_margin(target: LanguageModel, ids: Sequence[int]) -> float:
    """Difference of the two largest raw logits, float32, behind the tokens `ids`."""
    logits = target.prefill([list(ids)], target.new_cache(1, len(ids) + 1)).logits[0, 0].float()
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


def _nll(logits: Tensor, followers: Sequence[Sequence[int]]) -> Tensor:
    """[B] float64: -sum over i of log p(followers[b][i]) under logits [B, N, V] at i; padding is excluded."""
    width = logits.shape[1]
    tokens = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids in followers], device=logits.device)
    there = torch.tensor([[i < len(ids) for i in range(width)] for ids in followers], device=logits.device)
    nll = logits.logsumexp(-1) - logits.gather(-1, tokens[..., None])[..., 0]
    return torch.where(there, nll, 0.0).double().sum(-1).cpu()
