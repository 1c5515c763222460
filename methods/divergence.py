"""How far the target's next-token distributions after two tokens at one place lie apart:
Jensen-Shannon divergence in nats, which ARC-Decode's bounds are calibrated on and audited by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from methods.engine.cache import SlotCache
from methods.engine.language_model import LanguageModel


def union_js(z1: Tensor, z2: Tensor, top: int) -> Tensor:
    """JS in nats of two distributions given as logits [V], both restricted to the union of their
    `top` best tokens."""
    k = min(top, len(z1))
    union = torch.cat([z1.topk(k).indices, z2.topk(k).indices]).unique()
    p, q = z1[union].double().softmax(-1), z2[union].double().softmax(-1)
    js: Tensor = (
        torch.special.entr((p + q) / 2) - (torch.special.entr(p) + torch.special.entr(q)) / 2
    ).sum()
    return js.clamp(min=0.0)


@torch.inference_mode()
def next_step_js(
    target: LanguageModel,
    context: Sequence[int],
    answer: Sequence[int],
    alternatives: Mapping[int, int],
    top: int,
) -> dict[int, float]:
    """Index in the answer -> JS in nats between the next-token distributions after its token and
    after the alternative."""
    ids = [*context, *answer]
    cache = target.new_cache(1, len(ids) + 2)
    target.forward(torch.tensor([ids], device=target.device), cache, keep=1)
    # last first: trying tokens overwrites the cache after the position
    return {
        at: js_after(target, cache, len(context) + at, (answer[at], alternatives[at]), top)
        for at in sorted(alternatives, reverse=True)
    }


def js_after(
    target: LanguageModel, cache: SlotCache, length: int, tokens: tuple[int, int], top: int
) -> float:
    """JS between the distributions after two tokens, each appended to the cache's first `length`;
    later entries are overwritten."""
    cache.set_lengths([length])
    # siblings do not see each other
    ancestors = torch.eye(2, dtype=torch.bool, device=target.device)[None]
    depth = torch.zeros(1, 2, dtype=torch.long, device=target.device)
    pair = torch.tensor([list(tokens)], device=target.device)
    logits = target.forward(pair, cache, ancestors=ancestors, depth=depth).logits[0]
    return float(union_js(logits[0], logits[1], top))
