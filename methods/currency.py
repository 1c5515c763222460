"""Distances that people know, in the unit of a rule's distortion: of the target with rounded
weights, or at another temperature, from the target itself, on the same texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from methods.audit import Text, logits_of
from methods.distortion import compared
from methods.engine.language_model import LanguageModel
from methods.sampling import Sampling


@torch.inference_mode()
def distances(
    target: LanguageModel,
    others: Mapping[str, LanguageModel],
    temperatures: Sequence[float],
    texts: Sequence[Text],
    sampling: Sampling,
) -> dict[str, Tensor]:
    """Name -> [texts] float64: the sum over the text's tokens of KL(R || p), R the law of another
    model, or of the target at another temperature (`T = 0.9`), p that of the target."""
    found: dict[str, list[float]] = {}
    for text in texts:
        sums: dict[str, float] = {}
        streams = {name: logits_of(model, text) for name, model in others.items()}
        for logits in logits_of(target, text):
            laws = {name: sampling.process(next(stream)) for name, stream in streams.items()}
            laws |= {f"T = {t:g}": logits / t for t in temperatures}
            for name, processed in laws.items():
                law = processed.double().softmax(-1)
                nats = float(compared(logits, law, sampling)[:, 0].sum())
                sums[name] = sums.get(name, 0.0) + nats
        for name, nats in sums.items():
            found.setdefault(name, []).append(nats)
    return {name: torch.tensor(nats, dtype=torch.float64) for name, nats in found.items()}
