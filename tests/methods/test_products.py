"""Matrix products by measured kernels: the same numbers, one choice for all processes, never more than a copy."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from methods.decode import Limits, Request, generate
from methods.engine import products
from methods.engine.decoder import Product
from methods.engine.products import KERNELS, OWN, TOKENS, Matrix, Products, chosen, fastest
from methods.method import build_method
from methods.registry import drafter, rule
from methods.sampling import Sampling
from tests.helpers.tiny_models import language_model

COPIES = sorted(KERNELS.keys() - OWN)
pytestmark = pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
                                reason="this PyTorch lacks oneDNN's private operators")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(products, "COLD", 1 << 16)
    chosen.cache_clear()
    return tmp_path / "measured"


@pytest.mark.parametrize("names", [*((name,) * 8 for name in KERNELS), *(("linear", *(name,) * 7) for name in COPIES)],
                         ids=lambda names: f"{names[0]}, {names[1]}")
@pytest.mark.parametrize("columns", [True, False])
@torch.inference_mode()
def test_every_kernel_computes_the_product(names: tuple[str, ...], columns: bool) -> None:
    """for every number of tokens, against float64; with and without bias."""
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 40), torch.randn(96)
    held = weight.t().contiguous().t() if columns else weight
    for given in (None, bias):
        matrix = Matrix(held, given, names)
        for tokens in (*range(1, 36), 70):
            x = torch.randn(tokens, 40)
            want = x.double() @ weight.double().t() + (0 if given is None else given.double())
            got = matrix(x)
            assert got.shape == (tokens, 96) and got.is_contiguous()
            assert float((got - want).abs().max()) < 1e-4


@torch.inference_mode()
def test_products_in_bfloat16() -> None:
    """within the rounding of the inputs and of the result: the kernels that are chosen here."""
    torch.manual_seed(0)
    weight = torch.randn(256, 128).bfloat16()
    matrix = Matrix(weight, None, chosen(256, 128, False, torch.bfloat16, 1))
    for tokens in (1, 2, 7, 9, 33):
        x = torch.randn(tokens, 128).bfloat16()
        want = x.double() @ weight.double().t()
        assert float(((matrix(x).double() - want).abs() / (want.abs() + 1)).max()) < 2**-6


def test_the_layout_with_the_least_time_is_taken_unless_it_gains_nothing() -> None:
    plain, half, same = [1.0] * 8, [0.5] * 8, [0.99] * 8
    assert fastest({"linear": plain, "onednn": plain, "packed": half}) == ("packed",) * 8
    assert fastest({"linear": plain, "onednn": plain, "packed": same}) == ("linear",) * 8
    assert fastest({"linear": [0.1, *plain[1:]], "onednn": plain, "packed": half, "convolution": plain}) == (
        "linear", *("packed",) * 7)
    assert fastest({"linear": plain}) == ("linear",) * 8


def test_a_choice_is_measured_once_and_a_damaged_one_anew(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen(96, 40, True, torch.float32, 1)
    chosen.cache_clear()
    monkeypatch.setattr(products, "measured", lambda *_: pytest.fail("measured again"))
    assert chosen(96, 40, True, torch.float32, 1) == found
    monkeypatch.setattr(products, "measured", lambda *_: {"linear": (1.0,) * 8, "onednn": (2.0,) * 8})
    [note] = own_cache.glob("*.json")
    for value in ("{", '{"value": 3}', '{"value": ["linear"]}', json.dumps({"value": ["none such"] * 8}),
                  json.dumps({"value": ["packed"] * 4 + ["convolution"] * 4})):
        note.write_text(value)
        chosen.cache_clear()
        assert chosen(96, 40, True, torch.float32, 1) == ("linear",) * 8, value


@pytest.mark.parametrize("name", COPIES)
def test_a_model_on_copies_decodes_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """autoregressively and with a drafter, alone and in a batch; it still trains, and its copy has its own weights."""
    monkeypatch.setattr(products, "chosen", lambda *_: ("linear", *(name,) * (len(TOKENS) - 1)))
    packed = copy.deepcopy(language_model("llama", seed=3))
    packed.products = Products(1, True)
    requests = [Request([5, 6, 7, 5, 6], "a"), Request([9, 3, 9, 3, 9, 3, 9], "b"), Request([4, 4, 4, 4], "c")]
    limits, answers = Limits(12, frozenset()), []
    for target in (language_model("llama", seed=3), packed):
        for drafted in ("none", "prompt_lookup"):
            method = build_method(target, None, drafter(drafted)(), rule("greedy")(), Sampling(0.0), 3)
            answers.append([answer.output_ids for answer in generate(method, requests, limits)])
            answers.append([generate(method, [request], limits)[0].output_ids for request in requests])
    assert all(answer == answers[0] for answer in answers)
    loss = packed.model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in packed.model.parameters())
    other = copy.deepcopy(packed)
    assert isinstance(other.model.get_output_embeddings(), Product)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.zero_()
        tokens = torch.tensor([[1, 2, 3]])
        assert float(other.forward(tokens, other.new_cache(1, 8)).logits.abs().max()) == 0
        assert float(packed.forward(tokens, packed.new_cache(1, 8)).logits.abs().max()) > 0
