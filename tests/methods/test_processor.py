"""What multiplies matrices is chosen by the processor's maker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from methods.engine import decoder
from methods.engine.processor import described, product_library

CPUINFO = {
    "intel": ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n", "PyTorch"),
    "amd": ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n", "oneDNN"),
    "arm": ("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n", "oneDNN"),
    "unnamed": ("processor\t: 0\nvendor_id\t:\ncpu family\t: 6\n", "oneDNN"),
    "no text": ("\0\udcff", "oneDNN"),
}


@pytest.mark.parametrize("name", CPUINFO)
def test_by_the_vendor_that_linux_names(tmp_path: Path, name: str) -> None:
    text, library = CPUINFO[name]
    file = tmp_path / "cpuinfo"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert product_library(described("vendor_id", file)) == library


def test_another_system_keeps_onednn(tmp_path: Path) -> None:
    assert product_library(described("vendor_id", tmp_path / "none")) == "oneDNN"


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="a PyTorch without oneDNN")
@pytest.mark.parametrize(("by_onednn", "asked"), [(True, [1]), (False, [1, 3])])
def test_linear_takes_what_was_chosen(monkeypatch, by_onednn: bool, asked: list[int]) -> None:
    """F.linear multiplies a single token always, several where oneDNN does not."""
    plain, seen = torch.nn.functional.linear, []

    def watched(x, weight, bias=None):
        seen.append(len(x))
        return plain(x, weight, bias)

    monkeypatch.setattr(decoder, "BY_ONEDNN", by_onednn)
    monkeypatch.setattr(decoder.F, "linear", watched)
    weight, x = torch.randn(5, 4), torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(decoder.linear(x[:1], weight), x[:1] @ weight.T)
        torch.testing.assert_close(decoder.linear(x, weight), x @ weight.T)
    assert seen == asked
