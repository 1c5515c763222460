"""What multiplies matrices is read off a table, by the processor's maker, the weight's size and the
number of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from methods.engine import decoder, products
from methods.engine.processor import INTEL, MIB, NEVER, OTHERS, Kernels, described, kernels_of
from methods.engine.products import Matrix

CPUINFO = {
    "intel": ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n", INTEL),
    "amd": ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n", OTHERS),
    "unnamed": ("processor\t: 0\nvendor_id\t:\ncpu family\t: 6\n", OTHERS),
    "no text": ("\0\udcff", OTHERS),
}


@pytest.mark.parametrize("name", [*CPUINFO, "another system"])
def test_by_the_vendor_that_linux_names(tmp_path: Path, name: str) -> None:
    text, kernels = CPUINFO.get(name, ("", OTHERS))
    file = tmp_path / "cpuinfo"
    if text:
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert kernels_of(described("vendor_id", file)) is kernels


def test_by_size_and_tokens() -> None:
    """The last entry that a weight reaches counts, and only in a model that packs."""
    kernels = Kernels(NEVER, ((6 * MIB, 5), (64 * MIB, 2)))
    sizes = 6 * MIB - 4, 6 * MIB, 64 * MIB - 4, 64 * MIB
    assert [kernels.packed_from(size) for size in sizes] == [NEVER, 5, 5, 2]
    assert [kernels.chosen(7 * MIB, tokens, True) for tokens in (4, 5)] == [
        "PyTorch",
        "oneDNN, packed",
    ]
    assert kernels.chosen(7 * MIB, 5, False) == "PyTorch"
    assert [OTHERS.chosen(4, tokens, False) for tokens in (1, 2)] == ["PyTorch", "oneDNN"]
    assert (
        str(INTEL) == "PyTorch; packed in large models: from 6 MiB, 5 tokens, from 64 MiB, 2 tokens"
    )


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a PyTorch without oneDNN")
@pytest.mark.parametrize(("kernels", "asked"), [(OTHERS, [1]), (INTEL, [1, 3])])
def test_linear_takes_what_was_chosen(monkeypatch, kernels: Kernels, asked: list[int]) -> None:
    """F.linear multiplies a single token always, several where oneDNN does not."""
    plain, seen = torch.nn.functional.linear, []

    def watched(x, weight, bias=None):
        seen.append(len(x))
        return plain(x, weight, bias)

    monkeypatch.setattr(decoder, "KERNELS", kernels)
    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    weight, x = torch.randn(5, 4), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(decoder.linear(x[:1], weight), x[:1] @ weight.T)
        torch.testing.assert_close(decoder.linear(x, weight), x @ weight.T)
    assert seen == asked


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a PyTorch without oneDNN")
def test_a_matrix_takes_what_was_chosen(monkeypatch) -> None:
    """PyTorch below both thresholds, then oneDNN on the weight, then on its packed copy."""
    taken = []

    class Watched:
        def __getattr__(self, name: str):
            return getattr(torch.ops.mkldnn, name)

        def _linear_pointwise(self, x, weight, *others):
            taken.append((len(x), weight is matrix.packed))
            return torch.ops.mkldnn._linear_pointwise(x, weight, *others)

    monkeypatch.setattr(products, "mkldnn", Watched())
    weight, x = torch.randn(64, 32), torch.randn(6, 32)
    matrix = Matrix(weight, None, True, Kernels(2, ((0, 4),)))
    with torch.no_grad():
        for tokens in range(1, 7):
            torch.testing.assert_close(matrix(x[:tokens]), x[:tokens] @ weight.T)
    assert taken == [(2, False), (3, False), (4, True), (5, True), (6, True)]
    assert Matrix(weight, None, False, Kernels(2, ((0, 4),))).packed is None
    assert Matrix(weight, None, True, Kernels(2, ((1 << 30, 4),))).packed is None
