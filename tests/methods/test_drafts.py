"""Every node of a draft carries the distribution that its tokens were drawn from: that of its path,
read whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters._heads import HeadProposer, check_head
from methods.heads.eagle3_config import AUX_LAYERS
from methods.heads.head import load_eagle3
from methods.method import Method
from methods.sampling import Sampling
from methods.trees import static
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import (
    OPTIONS,
    head_json,
    inner_nodes,
    method_of,
    requests,
    save_head,
)
from tests.helpers.tiny_models import language_model

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("model", "llama", {}),
    ("model", "llama", {"sample": False}),
    ("model", "llama", {"branching": [2, 2]}),
    ("early_exit", "llama", {"exit_layer": 1}),
    ("early_exit", "qwen3", {"exit_layer": 2}),
    ("early_exit", "gemma2", {"exit_layer": 2}),
    ("eagle", "llama", OPTIONS["eagle"]),
    ("eagle2", "llama", OPTIONS["eagle2"]),
    ("medusa", "llama", {"tree": "medusa_63"}),
]
PROMPTS, NEW = 3, 16


@torch.inference_mode()
def read_whole(method: Method, name: str, ids: list[int], path: list[int]) -> Tensor:
    """[V] logits behind committed `ids` and a drafted `path`, in one piece without cache, mask or
    tree. A head is fed true features up to the root, and its own output from there on."""
    target, head = method.target, method.model
    tokens = torch.tensor([ids + path])
    if name == "model":
        return head.model(tokens).logits[0, -1]
    if name == "early_exit":
        states = target.model(tokens, use_cache=False, output_hidden_states=True).hidden_states
        state = states[method.drafter.exit_layer][0, -1]
        return target.head(target.model.base_model.norm(state))
    committed = torch.tensor([ids[:-1]])
    states = target.model(committed, output_hidden_states=True, use_cache=False).hidden_states
    if name == "medusa":
        block, out = head.model[len(path)]
        x = states[-1][0, -1].double()
        inner = block.linear.weight.double() @ x + block.linear.bias.double()
        return (out.weight.double() @ (x + F.silu(inner))).float()
    features = [states[index] for index in method.drafter.features(head)]
    hidden, seen = head.model.fuse(torch.cat(features, -1)), ids[1:]
    for token in path:
        out = head.model(head.embed(torch.tensor([seen])), hidden)
        seen, hidden = [*seen, token], torch.cat([hidden, out[:, -1:]], 1)
    out = head.model(head.embed(torch.tensor([seen])), hidden)
    return head.over_target(head.logits(out[:, -1:]))[0, 0]


def inner(log, asked: list[Request]) -> Iterator[tuple[list[int], list[int], Tensor]]:
    """Committed ids, path and logits of every node with children, in four cycles of a ragged batch;
    the draft of a row that is finished is nobody's."""
    assert len(log) > 2 and len({len(row) for row in log[-1][0]}) > 1
    for rows, draft, _ in log[:4]:
        for row, ids in enumerate(rows):
            if len(ids) - len(asked[row].input_ids) < NEW:
                yield from ((ids, *found) for found in inner_nodes(draft, row))


@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=str)
def test_a_node_says_what_its_path_says(
    name: str, kind: str, options: dict[str, Any], watched
) -> None:
    """q is that of a token in the distribution of its parent."""
    target, sampling = language_model(kind, layers=3), Sampling(0.5)
    rule = registry.rule("lossless")(q_mode="draft")
    method = method_of(name, rule, sampling, target=target, **options)
    log, asked = watched(type(method.proposer([[1, 2]], 64))), requests(PROMPTS)
    generate(method, asked, Limits(NEW, frozenset()))
    # without a norm between the steps of a head rounding grows with depth; a wrong token, place or
    # mask is larger
    off = 1e-4 if name == "medusa" else 2e-3
    for ids, path, logits in inner(log, asked):
        expected = read_whole(method, name, ids, path)
        largest = float(expected.abs().max())
        torch.testing.assert_close(logits, expected, rtol=0, atol=off * largest)
    for _, draft, _ in log[:4]:
        parents = draft.parents.expand(draft.tokens.shape)[:, 1:]
        q = sampling.probs(draft.logits) if draft.sampled else draft.logits.softmax(-1)
        of_parent = q.gather(1, parents[..., None].expand(-1, -1, q.shape[-1]))
        own = of_parent.gather(2, draft.tokens[:, 1:, None])[..., 0]
        torch.testing.assert_close(draft.q[:, 1:], own)
        if name in ("eagle", "medusa"):  # a static tree holds the best guesses behind each node
            shape, best = static.load(options["tree"]), draft.logits.argsort(-1, descending=True)
            assert draft.parents[0].tolist() == list(shape.parents)
            guesses = best[:, shape.parents[1:], shape.ranks[1:]]
            assert torch.equal(draft.tokens[:, 1:], guesses)


@pytest.mark.parametrize("rule", ["lossless", "contrastive"])
@pytest.mark.parametrize("name", ["model", "early_exit"])
def test_the_last_node_says_it_only_where_a_rule_reads_it(name: str, rule: str, watched) -> None:
    method = method_of(name, rule)
    log = watched(type(method.proposer([[1, 2]], 64)))
    generate(method, requests(1), Limits(NEW, frozenset()))
    [ids], draft, _ = log[0]
    expected = read_whole(method, name, ids, draft.tokens[0, 1:].tolist())
    assert torch.allclose(draft.logits[0, -1], expected, atol=1e-3) == (rule == "contrastive")


EAGLE3 = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "EAGLE 3.1": {"fc_norm": True, "norm_output": True},
    "all norms, nested": {
        "eagle_config": {"norm_before_fc": True, "norm_output": True},
        "norm_before_residual": True,
    },
    "final states alone": {"eagle_config": {"use_aux_hidden_state": False, AUX_LAYERS: []}},
    "two layers": {"num_hidden_layers": 2},
    "sliding window": {"layer_types": ["sliding_attention"], "sliding_window": 7},
    "rotary base": {"rope_theta": 50.0},
    "rotary base, nested": {"rope_parameters": {"rope_theta": 50.0, "rope_type": "default"}},
    "two features": {AUX_LAYERS: [3, 1]},
    "four features": {"eagle_config": {AUX_LAYERS: [0, 2, 1, 3]}, "fc_norm": True},
}
"""Keys of a head's config.json: each changes what is computed as vLLM's `llama_eagle3.py` does."""


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, 1e-5)


def rotate(x: Tensor, base: float) -> Tensor:
    """x [heads, n, d], at positions 0 … n-1: pairs of halves as complex numbers, turned."""
    count, half = x.shape[1], x.shape[2] // 2
    angle = torch.arange(count).double()[:, None] * base ** (-torch.arange(half).double() / half)
    turned = torch.complex(*x.chunk(2, -1)) * torch.exp(1j * angle)
    return torch.cat([turned.real, turned.imag], -1)


class Reference:
    """A head of EAGLE-3 from the definitions of vLLM's file, on plain float64 tensors and one
    sequence."""

    def __init__(self, folder: Path) -> None:
        self.raw = json.loads((folder / "config.json").read_text())
        self.raw |= self.raw.get("eagle_config", {})
        self.base = self.raw.get("rope_parameters", self.raw).get("rope_theta", 10000.0)
        tensors = load_file(folder / "model.safetensors")
        self.t = {name: value.double() for name, value in tensors.items()}

    def fuse(self, states: list[Tensor]) -> Tensor:
        """Hidden states [n, H], all that the target has."""
        if not self.raw.get("use_aux_hidden_state", True):
            return states[-1]
        layers = len(states) - 1
        parts = [states[i] for i in self.raw.get(AUX_LAYERS) or (2, layers // 2, layers - 3)]
        if self.raw.get("norm_before_fc"):
            parts = [rms(torch.cat(parts, 1), self.t["input_norm.weight"])]
        if self.raw.get("fc_norm"):
            parts = [rms(part, self.t[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)]
        return torch.cat(parts, 1) @ self.t["fc.weight"].T

    def attention(self, x: Tensor, name: str) -> Tensor:
        query, key, value = (
            (x @ self.t[f"{name}.self_attn.{kind}_proj.weight"].T)
            .view(len(x), -1, 12)
            .swapdims(0, 1)
            for kind in "qkv"
        )
        distance = torch.arange(len(x))[:, None] - torch.arange(len(x))
        seen = (distance >= 0) & (distance < self.raw.get("sliding_window", len(x)))
        query, key = rotate(query, self.base), rotate(key, self.base)
        out = F.scaled_dot_product_attention(query, key, value, seen, enable_gqa=True)
        return out.swapdims(0, 1).flatten(1) @ self.t[f"{name}.self_attn.o_proj.weight"].T

    def mlp(self, x: Tensor, name: str) -> Tensor:
        gate, up = (x @ self.t[f"{name}.mlp.{kind}_proj.weight"].T for kind in ("gate", "up"))
        return (F.silu(gate) * up) @ self.t[f"{name}.mlp.down_proj.weight"].T

    def run(self, embeddings: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """[n, H] twice -> what is fed back [n, h] and logits [n, Vd]."""
        normed = rms(hidden, self.t["midlayer.hidden_norm.weight"])
        x = torch.cat([rms(embeddings, self.t["midlayer.input_layernorm.weight"]), normed], 1)
        stream = normed if self.raw.get("norm_before_residual") else hidden
        for index in range(self.raw.get("num_hidden_layers", 1)):
            name = f"layers.{index}" if index else "midlayer"
            if index:
                x = rms(stream, self.t[f"{name}.input_layernorm.weight"])
            stream = stream + self.attention(x, name)
            stream = stream + self.mlp(
                rms(stream, self.t[f"{name}.post_attention_layernorm.weight"]), name
            )
        normed = rms(stream, self.t["norm.weight"])
        return normed if self.raw.get("norm_output") else stream, normed @ self.t[
            "lm_head.weight"
        ].T

    @torch.inference_mode()
    def logits(self, target, ids: list[int], path: list[int]) -> Tensor:
        """[V] behind committed `ids` and a drafted `path`."""
        states = target.model(
            torch.tensor([ids[:-1]]), output_hidden_states=True, use_cache=False
        ).hidden_states
        embedding = target.embedding.double()
        hidden, tokens = self.fuse([state[0].double() for state in states]), ids[1:]
        for token in [*path, None]:
            back, logits = self.run(embedding[tokens], hidden)
            if token is not None:
                tokens, hidden = [*tokens, token], torch.cat([hidden, back[-1:]])
        full = torch.full((target.vocab_size,), -torch.inf, dtype=torch.float64)
        if "d2t" not in self.t:
            return logits[-1]
        full[torch.arange(len(self.t["d2t"])) + self.t["d2t"].long()] = logits[-1]
        return full


def head_folder(folder: Path, target, **changes) -> Path:
    """A head with random weights, its norms' too."""
    save_head(folder, "eagle3", head_json(target, draft_vocab_size=40) | changes)
    tensors, draw = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(3)
    for name, tensor in tensors.items():
        if name.endswith("norm.weight") or name.startswith("fc_norm"):
            tensor.uniform_(0.5, 1.5, generator=draw)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "llama") for name in EAGLE3),
        ("EAGLE 3.1", "gemma2"),
        ("two layers", "gemma2"),
        ("sliding window", "gemma2"),
    ],
)
def test_a_key_of_eagle_3_computes_what_it_says(
    name: str, kind: str, tmp_path: Path, watched
) -> None:
    """By the lean layers (llama) and through modules (gemma2), against the reference."""
    target, log, asked = language_model(kind, layers=4), watched(HeadProposer), requests(PROMPTS)
    folder = head_folder(tmp_path, target, **EAGLE3[name])
    head, reference = load_eagle3(str(folder), target), Reference(folder)
    assert head.lean == (kind == "llama")
    check_head(head)
    plain, changed = Reference(head_folder(tmp_path / "plain", target)), 0.0
    drafter = registry.drafter("eagle3")(total=8, depth=2, top_k=3)
    rule = registry.rule("lossless")(q_mode="draft")
    generate(method_on(target, head, drafter, rule, 1.0), asked, Limits(NEW, frozenset()))
    for ids, path, logits in inner(log, asked):
        want = reference.logits(target, ids, path)
        largest = float(want[want.isfinite()].abs().max())
        torch.testing.assert_close(logits.double(), want, rtol=2e-4, atol=2e-4 * largest)
        apart = (want - plain.logits(target, ids, path)).nan_to_num().abs()
        changed = max(changed, float(apart.max()))
    assert (changed > 0.05) == (name != "plain")  # the key matters, so the comparison sees it
