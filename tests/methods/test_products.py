"""Matrix products on packed weights: the same numbers and tokens, for models that are large and not
too large."""

from __future__ import annotations

import copy

import pytest
import torch

from methods.engine.decoder import Product
from methods.engine.processor import OTHERS
from methods.engine.products import SMALLEST, Matrix, Products, packs
from tests.helpers.tiny_models import language_model

pytestmark = pytest.mark.skipif(
    not packs(torch.float32), reason="this PyTorch lacks oneDNN's private operators"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [True, False])
@torch.inference_mode()
def test_the_product(dtype: torch.dtype, columns: bool) -> None:
    """for every number of tokens, against float64; with and without bias."""
    if not packs(dtype):
        return
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 40).to(dtype), torch.randn(96).to(dtype)
    held = weight.t().contiguous().t() if columns else weight
    for given in (None, bias):
        matrix = Matrix(held, given, True, OTHERS)  # packs every size
        assert matrix.packed is not None
        for tokens in (*range(1, 36), 70):
            x = torch.randn(tokens, 40).to(dtype)
            want = x.double() @ weight.double().t() + (0 if given is None else given.double())
            got = matrix(x)
            assert got.shape == (tokens, 96) and got.is_contiguous() and got.dtype == dtype
            assert float(((got - want).abs() / (want.abs() + 1)).max()) < (
                1e-4 if dtype == torch.float32 else 2**-6
            )


def test_which_models_are_packed() -> None:
    """One that leaves the caches, if the copies of all processes fit half of the memory."""
    with torch.device("meta"):
        small, large = (
            torch.nn.Linear(1, size // 4, bias=False) for size in (SMALLEST - 4, SMALLEST)
        )
    assert (
        Products.of(large, 1).serves
        and not Products.of(small, 1).serves
        and not Products.of(large, 1 << 20).serves
    )
    assert Products(False).matrix(torch.zeros(2, 2), None).packed is None


def test_a_packed_model_gives_the_same_logits() -> None:
    """Behind one token and behind several; it still trains, and its copy has its own weights."""
    plain = language_model("llama", seed=3)
    packed = copy.deepcopy(plain)
    packed.products = Products(True, OTHERS)
    for length in (1, 9):
        ids = torch.arange(length)[None]
        with torch.no_grad():
            want, got = (m.forward(ids, m.new_cache(1, 16)).logits for m in (plain, packed))
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    tokens = torch.tensor([[1, 2, 3]])
    packed.model(tokens, labels=tokens).loss.backward()
    assert all(parameter.grad is not None for parameter in packed.model.parameters())
    other = copy.deepcopy(packed)
    assert isinstance(other.model.get_output_embeddings(), Product)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.zero_()
        zeroed, whole = (m.forward(tokens, m.new_cache(1, 8)).logits for m in (other, packed))
    assert not zeroed.any() and whole.any()
