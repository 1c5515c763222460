"""bench/dry_run/known.yaml: parameters and cache of the papers' models follow from their published shapes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from bench.dry_run.estimate import known


class Shape(NamedTuple):
    """Of a decoder: vocabulary, hidden size, MLP size, layers, heads, key-value heads, head dimension; whether the LM
    head is the embedding, biases of q, k and v, norms of a layer, norms of q and k, experts."""

    vocabulary: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    dim: int
    tied: bool = False
    bias: bool = False
    norms: int = 2
    qk_norm: bool = False
    experts: int = 1

    @property
    def parameters(self) -> int:
        wide, narrow = self.heads * self.dim, self.kv_heads * self.dim
        attention = 2 * self.hidden * (wide + narrow) + self.bias * (wide + 2 * narrow) + self.qk_norm * 2 * self.dim
        router = self.hidden * self.experts if self.experts > 1 else 0
        layer = attention + self.experts * 3 * self.hidden * self.mlp + router + self.norms * self.hidden
        return (2 - self.tied) * self.vocabulary * self.hidden + self.layers * layer + self.hidden


SHAPES = {
    "meta-llama/Llama-3.1-8B-Instruct": Shape(128256, 4096, 14336, 32, 32, 8, 128),
    "facebook/layerskip-llama3-8B": Shape(128256, 4096, 14336, 32, 32, 8, 128),
    "meta-llama/Llama-3.2-1B-Instruct": Shape(128256, 2048, 8192, 16, 32, 8, 64, tied=True),
    "meta-llama/Llama-3.1-70B-Instruct": Shape(128256, 8192, 28672, 80, 64, 8, 128),
    "meta-llama/Llama-3.3-70B-Instruct": Shape(128256, 8192, 28672, 80, 64, 8, 128),
    "lmsys/vicuna-13b-v1.3": Shape(32000, 5120, 13824, 40, 40, 40, 128),
    "double7/vicuna-68m": Shape(32000, 768, 3072, 2, 12, 12, 64),
    "Qwen/Qwen3-0.6B": Shape(151936, 1024, 3072, 28, 16, 8, 128, tied=True, qk_norm=True),
    "Qwen/Qwen3-4B": Shape(151936, 2560, 9728, 36, 32, 8, 128, tied=True, qk_norm=True),
    "Qwen/Qwen3-8B": Shape(151936, 4096, 12288, 36, 32, 8, 128, qk_norm=True),
    "Qwen/Qwen3-32B": Shape(151936, 5120, 25600, 64, 64, 8, 128, qk_norm=True),
    "Qwen/Qwen3-235B-A22B": Shape(151936, 4096, 1536, 94, 64, 4, 128, qk_norm=True, experts=128),
    "Qwen/Qwen2.5-7B-Instruct": Shape(152064, 3584, 18944, 28, 28, 4, 128, bias=True),
    "Qwen/Qwen2.5-32B-Instruct": Shape(152064, 5120, 27648, 64, 40, 8, 128, bias=True),
    "google/gemma-2-2b-it": Shape(256000, 2304, 9216, 26, 8, 4, 256, tied=True, norms=4),
    "google/gemma-2-27b-it": Shape(256000, 4608, 36864, 46, 32, 16, 128, tied=True, norms=4),
}
@pytest.mark.parametrize("name", SHAPES)
def test_parameters_and_cache_of_a_model(name: str) -> None:
    shape, model = SHAPES[name], known().models[name]
    assert model.parameters == shape.parameters
    assert model.kv == 2 * shape.layers * shape.kv_heads * shape.dim
    if name == "Qwen/Qwen3-235B-A22B":  # eight experts of a layer
        assert model.active == pytest.approx(shape._replace(experts=8).parameters, rel=0.02)
