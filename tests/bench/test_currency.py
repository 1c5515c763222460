"""`python -m bench.currency`: rounded weights and other temperatures, in nats per token."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from transformers import AutoModelForCausalLM

from bench.currency import row_of
from methods.audit import Text
from methods.currency import distances
from methods.engine.altered import FORMS, altered, rounded
from methods.engine.loading import load_model
from methods.sampling import Sampling


def test_forms_of_weights():
    """A step is 1/127 of the largest of a row, or of a block of 32 in GGUF's Q8_0."""
    weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    largest = weight.abs().amax(-1, keepdim=True)
    assert ((rounded(weight, "int8") - weight).abs() <= largest / 254 + 1e-6).all()
    assert torch.equal(rounded(weight, "bfloat16"), weight.bfloat16().float())
    kind = GGMLQuantizationType.Q4_0
    expected = dequantize(quantize(weight.numpy(), kind), kind)
    assert np.array_equal(rounded(weight, "Q4_0").numpy(), expected)
    errors = [float((rounded(weight, form) - weight).square().mean()) for form in FORMS]
    by_form = dict(zip(FORMS, errors, strict=True))
    assert by_form["Q8_0"] < by_form["Q5_0"] < by_form["Q4_0"]


def test_distances_are_those_of_transformers(pair_folder):
    folder = str(pair_folder / "target")
    target = load_model(folder, dtype="float32", device="cpu")
    other, left = altered(target, "Q4_0")
    assert left > 0, "rows of 48 have no whole blocks"
    text = Text("a", [5, 9, 30], [40, 41, 7])
    nats = distances(target, {"Q4_0": other}, [0.5], [text], Sampling(1.0))
    plain, again = (AutoModelForCausalLM.from_pretrained(folder) for _ in range(2))
    with torch.no_grad():
        for weight in again.parameters():
            if weight.ndim == 2 and weight.shape[-1] % 32 == 0:
                weight.copy_(rounded(weight, "Q4_0"))
        ids = torch.tensor([[5, 9, 30, 40, 41, 7]])
        z, z4 = (model(ids).logits[0, 2:-1].double() for model in (plain, again))
    for name, r in (("Q4_0", z4.log_softmax(-1)), ("T = 0.5", (z / 0.5).log_softmax(-1))):
        kl = (r.exp() * (r - z.log_softmax(-1))).sum()
        assert float(nats[name][0]) == pytest.approx(float(kl), rel=1e-3)


def test_intervals_are_over_prompts():
    row = row_of("x", np.array([2.0, 4.0, 1.0]), np.array([2, 2, 1]), np.array([0, 0, 1]))
    assert row["D"] == pytest.approx(7 / 5) and row["answer"] == pytest.approx(7 / 3)
    effects = np.array([6 - 4 * 1.4, 1 - 1.4]) / 5
    half = 12.706 * np.sqrt((effects**2).sum() * 2)
    assert row["high"] - row["D"] == pytest.approx(half, rel=1e-3)
