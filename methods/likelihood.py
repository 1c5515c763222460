"""NLL (nats) of the emitted tokens under the target's raw distribution, from the logits that
verified them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from methods.batch import Generation
from methods.decode import Limits, Observer, Request, generate
from methods.distortion import LawRecorder
from methods.method import Method
from methods.rules.verification import Verification
from methods.rules.walk import Decision, Walk


class EmittedNll(Observer):
    """Collects -log p0 of every emitted token, p0 the softmax of the raw logits in its context
    (temperature 1, no top-k or top-p): no forward beside those of the decode.

    nats  of each request, its tokens in order; behind its end more may follow."""

    def __init__(self) -> None:
        self.nats: list[list[float]] = []

    def on_first(self, logits: Tensor, token: Tensor) -> None:
        self.nats = [[nats] for nats in _nll(logits, logits.logsumexp(-1), token).tolist()]

    def on_cycle(
        self,
        v: Verification,
        decision: Decision,
        path: Walk,
        token: Tensor,
        u: Tensor,
        requests: Sequence[int],
    ) -> None:
        drawn = _nll(v.at(v.logits, path.last), v.at(v.log_mass, path.last), token)
        nats = torch.cat([-v.token_logprob[:, 1:], drawn[:, None]], 1)
        emitted = torch.cat([path.kept[:, 1:], torch.ones_like(path.kept[:, :1])], 1)
        for request, row, mask in zip(requests, nats.cpu(), emitted.cpu(), strict=True):
            self.nats[request] += row[mask].tolist()

    def add_to(self, generations: Sequence[Generation]) -> None:
        """Set the `nll` of the generations of all requests."""
        for generation, nats in zip(generations, self.nats, strict=True):
            generation.nll = sum(nats[: len(generation.output_ids)])


def generate_with_nll(
    method: Method, requests: Sequence[Request], limits: Limits
) -> list[Generation]:
    """Decode a batch as `generate` does, with the same tokens, and set each generation's `nll`;
    where `limits.laws` asks for it, its `divergence` too."""
    return watched(method, requests, limits)


def watched(
    method: Method, requests: Sequence[Request], limits: Limits, *more: Observer
) -> list[Generation]:
    """As `generate_with_nll`, with more observers."""
    watchers: list[EmittedNll | LawRecorder] = [
        EmittedNll(),
        *([LawRecorder(method, limits)] if limits.laws else []),
    ]
    generations = generate(method, requests, limits, observers=[*more, *watchers])
    for watcher in watchers:
        watcher.add_to(generations)
    return generations


def overflow(generation: Generation, source: str) -> str:
    """One line where the logits of `source` overflowed within an answer whose `nll` was asked for,
    else empty."""
    if generation.nll is None or math.isfinite(generation.nll):
        return ""
    return (
        f"{source}: its logits are not finite within the answer (NLL {generation.nll}): its "
        "activations overflow; give engine.dtype=bfloat16 or float32"
    )


def _nll(logits: Tensor, log_mass: Tensor, token: Tensor) -> Tensor:
    """[B] float64: -log p0(token) under logits [B, V], whose logsumexp is log_mass [B]."""
    return (log_mass - logits.gather(-1, token[:, None])[:, 0]).double()
