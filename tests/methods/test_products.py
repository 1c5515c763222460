"""Matrix products by measured kernels: the same numbers, one choice for all processes, never more than a copy."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import torch

from methods.decode import Limits, Request, generate
from methods.engine import products
from methods.engine.block import Product
from methods.engine.kernels import LAYOUTS, OWN, TOKENS, Choice, Matrix, has_kernels
from methods.engine.products import Products, Shape, choice_of, fastest, shapes
from methods.engine.user_cache import noted
from methods.method import build_method
from methods.registry import drafter, rule
from methods.sampling import Sampling
from tests.helpers.architectures import config_of, random_model
from tests.helpers.tiny_models import language_model

pytestmark = pytest.mark.skipif(not has_kernels(torch.float32), reason="this PyTorch lacks oneDNN's private operators")
SHAPE = Shape(96, 40, True, 2)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path))
    return tmp_path / "measured"


def choices() -> list[Choice]:
    return [Choice(layout, (kernel,) * len(TOKENS)) for layout in (None, *LAYOUTS) for kernel in (*OWN, layout)
            if kernel is not None]


@pytest.mark.parametrize("choice", choices(), ids=lambda choice: f"{choice.layout}, {choice.kernels[0]}")
@pytest.mark.parametrize("columns", [True, False])
@torch.inference_mode()
def test_every_kernel_computes_the_product(choice: Choice, columns: bool) -> None:
    """for every number of tokens, against float64; with and without bias."""
    torch.manual_seed(0)
    weight, bias = torch.randn(96, 40), torch.randn(96)
    held = weight.t().contiguous().t() if columns else weight
    for given in (None, bias):
        matrix = Matrix(held, given, choice)
        for tokens in (*range(1, 36), 70):
            x = torch.randn(tokens, 40)
            want = x.double() @ weight.double().t() + (0 if given is None else given.double())
            got = matrix(x)
            assert got.shape == (tokens, 96) and got.is_contiguous()
            assert float((got - want).abs().max()) < 1e-4


@torch.inference_mode()
def test_products_in_bfloat16() -> None:
    """within the rounding of the inputs and of the result: the kernels that are chosen here, or the plain product."""
    torch.manual_seed(0)
    plain = Choice(None, ("linear",) * len(TOKENS))
    weight = torch.randn(256, 128).bfloat16()
    chosen = choice_of(Shape(256, 128, False, 2), "bfloat16", 1) if has_kernels(torch.bfloat16) else plain
    matrix = Matrix(weight, None, chosen)
    for tokens in (1, 2, 7, 9, 33):
        x = torch.randn(tokens, 128).bfloat16()
        want = x.double() @ weight.double().t()
        assert float(((matrix(x).double() - want).abs() / (want.abs() + 1)).max()) < 2**-6


def test_the_layout_with_the_least_time_is_taken_unless_it_gains_nothing() -> None:
    plain, half, same = (1.0,) * len(TOKENS), (0.5,) * len(TOKENS), (0.99,) * len(TOKENS)
    assert fastest({"linear": plain, "onednn": plain, "packed 8": half}) == Choice("packed 8", ("packed 8",) * 8)
    assert fastest({"linear": plain, "onednn": plain, "packed 8": same}).layout is None
    mixed = fastest({"linear": (0.1, *plain[1:]), "onednn": plain, "packed 8": half, "convolution": plain})
    assert mixed.kernels == ("linear", *("packed 8",) * 7) and mixed.shown() == "linear to 1, packed 8 to 32"


def test_a_choice_is_measured_once_and_a_damaged_one_anew(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = choice_of(SHAPE, "float32", 1)
    monkeypatch.setattr(products, "measured", lambda *_: pytest.fail("measured again"))
    assert choice_of(SHAPE, "float32", 1) == found
    monkeypatch.setattr(products, "measured", lambda *_: {"linear": (1.0,) * 8, "onednn": (2.0,) * 8})
    plain = Choice(None, ("linear",) * 8)
    [note] = own_cache.glob("*.json")
    for value in ("{", '{"value": 3}', '{"value": {"layout": "none such", "kernels": ["linear"]}}',
                  json.dumps({"value": {"layout": None, "kernels": ["packed 8"] * 8}})):
        note.write_text(value)
        assert choice_of(SHAPE, "float32", 1) == plain, value


@pytest.mark.usefixtures("own_cache")
def test_those_that_start_together_share_one_measurement() -> None:
    """The lock is that of a file opened anew, so it parts threads as it parts processes."""
    began, measured = [Event() for _ in range(3)], []

    def measure() -> int:
        for one in began:
            one.wait()
        measured.append(1)
        return len(measured)

    def ask(number: int) -> int:
        began[number].set()
        return noted("slow", measure, int)

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(ask, range(3))) == [1, 1, 1]


def packed(layout: str) -> tuple[object, Products]:
    """A small model whose every product of more than one token reads a copy in this layout."""
    target = copy.deepcopy(language_model("llama", seed=3))
    choice = Choice(layout, ("linear", *(layout,) * (len(TOKENS) - 1)))
    target.products = Products({shape: choice for shape in shapes(target.model)}, 1)
    return target, target.products


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_on_copies_decodes_the_same_tokens(layout: str) -> None:
    """autoregressively and with a drafter, alone and in a batch; and it still trains."""
    requests = [Request([5, 6, 7, 5, 6], "a"), Request([9, 3, 9, 3, 9, 3, 9], "b"), Request([4, 4, 4, 4], "c")]
    limits, answers = Limits(12, frozenset()), []
    for target in (language_model("llama", seed=3), packed(layout)[0]):
        for name in ("none", "prompt_lookup"):
            method = build_method(target, None, drafter(name)(), rule("greedy")(), Sampling(0.0), 3)
            answers.append([one.output_ids for one in generate(method, requests, limits)])
            answers.append([generate(method, [request], limits)[0].output_ids for request in requests])
    assert all(answer == answers[0] for answer in answers)
    loss = target.model(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]])).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in target.model.parameters())


@torch.inference_mode()
def test_a_copy_of_a_model_multiplies_with_weights_of_its_own() -> None:
    target, _ = packed("packed 8")
    tokens = torch.tensor([[1, 2, 3]])
    want = target.forward(tokens, target.new_cache(1, 8)).logits
    other = copy.deepcopy(target)
    assert isinstance(other.model.get_output_embeddings(), Product)
    for parameter in other.model.parameters():
        parameter.zero_()
    assert float(other.forward(tokens, other.new_cache(1, 8)).logits.abs().max()) == 0
    assert torch.equal(target.forward(tokens, target.new_cache(1, 8)).logits, want)


def test_layers_that_share_keys_and_values_have_no_weights_for_them() -> None:
    """Gemma 3n's last layers."""
    model = random_model(config_of("gemma3n_text")).model
    held = [name for name, _ in model.named_parameters() if name.endswith(("k_proj.weight", "v_proj.weight"))]
    joined = sum(shape.number for shape in shapes(model) if shape.columns)
    assert 0 < len(held) < 2 * 4 and joined == 4 * 4, "four groups of projections in each of four layers"
