"""Keys of an EAGLE-3 head's config.json: each changes what is computed as vLLM's `llama_eagle3.py`
does. What is refused: test_refused_files.py.

The reference below is written from that file's definitions, on plain tensors and one sequence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from methods import registry
from methods.decode import Limits, generate
from methods.drafters import _heads
from methods.drafters._heads import HeadProposer, check_head
from methods.engine.source import ModelError
from methods.heads.eagle3_config import AUX_LAYERS, form_of
from methods.heads.head import load_eagle3
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import head_json, inner_nodes, random_head, requests, save_head
from tests.helpers.tiny_models import language_model

SLIDING = {"layer_types": ["sliding_attention"], "sliding_window": 7}
CASES = {
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
    "three layers, norms": {
        "num_hidden_layers": 3,
        "norm_before_residual": True,
        "norm_output": True,
    },
    "sliding window": SLIDING,
    "two features": {AUX_LAYERS: [3, 1]},
    "four features": {"eagle_config": {AUX_LAYERS: [0, 2, 1, 3]}, "fc_norm": True},
}


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)


def rotate(x: Tensor) -> Tensor:
    """x [heads, n, d], at positions 0 … n-1: pairs of halves as complex numbers, turned."""
    count, half = x.shape[1], x.shape[2] // 2
    angle = torch.arange(count)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle, dtype=torch.double), angle.double()
    )
    return torch.cat([turned.real, turned.imag], -1)


class Reference:
    """A head on plain float64 tensors."""

    def __init__(self, folder: Path) -> None:
        self.raw = json.loads((folder / "config.json").read_text())
        self.raw |= self.raw.get("eagle_config", {})
        self.t = {
            name: value.double() for name, value in load_file(folder / "model.safetensors").items()
        }

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
        scores = rotate(query) @ rotate(key).repeat_interleave(2, 0).mT / 12**0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out = (weights @ value.repeat_interleave(2, 0)).swapdims(0, 1).flatten(1)
        return out @ self.t[f"{name}.self_attn.o_proj.weight"].T

    def mlp(self, x: Tensor, name: str) -> Tensor:
        gate, up = (x @ self.t[f"{name}.mlp.{kind}_proj.weight"].T for kind in ("gate", "up"))
        return (torch.nn.functional.silu(gate) * up) @ self.t[f"{name}.mlp.down_proj.weight"].T

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
    save_head(
        folder, "eagle3", head_json(target, draft_vocab_size=40, rope_theta=10000.0) | changes
    )
    tensors, draw = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(3)
    for name, tensor in tensors.items():
        if name.endswith("norm.weight") or name.startswith("fc_norm"):
            tensor.uniform_(0.5, 1.5, generator=draw)
    save_file(tensors, folder / "model.safetensors")
    return folder


def as_speculators(folder: Path) -> Path:
    """The same head as speculators writes it."""
    raw = json.loads((folder / "config.json").read_text())
    own = {
        key: raw.pop(key)
        for key in ("draft_vocab_size", "norm_before_residual", "norm_output")
        if key in raw
    }
    raw["model_type"] = "llama"
    whole = {
        "architectures": ["Eagle3DraftModel"],
        "model_type": "speculators",
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": False,
        "target_hidden_size": None,
        AUX_LAYERS: [1, 2, 3],
        "transformer_layer_config": raw,
    }
    (folder / "config.json").write_text(json.dumps(whole | own))
    tensors = {
        name.replace("midlayer.", "layers.0."): value
        for name, value in load_file(folder / "model.safetensors").items()
        if name != "t2d"
    }
    save_file(tensors | {"verifier_norm.weight": torch.ones(32)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "llama") for name in CASES),
        ("EAGLE 3.1", "gemma2"),
        ("two layers", "gemma2"),
        ("sliding window", "gemma2"),
    ],
)
def test_a_key_computes_what_it_says(name: str, kind: str, tmp_path: Path, watched) -> None:
    """Every node of trees drafted in a batch, by the lean layers (llama) and through modules
    (gemma2), against the reference."""
    target, log = language_model(kind, layers=4), watched(HeadProposer)
    folder = head_folder(tmp_path, target, **CASES[name])
    head, reference = load_eagle3(str(folder), target), Reference(folder)
    assert head.lean == (kind == "llama")
    check_head(head)
    plain, changed = Reference(head_folder(tmp_path / "plain", target)), 0.0
    drafter = registry.drafter("eagle3")(total=8, depth=2, top_k=3)
    rule = registry.rule("lossless")(q_mode="draft")
    method = method_on(target, head, drafter, rule, 1.0, 3)
    generate(method, requests(2, low=9, high=14), Limits(30, frozenset()))
    for rows, draft, _ in (log[0], log[2]):
        for row, ids in enumerate(rows):
            for path, logits in inner_nodes(draft, row):
                want = reference.logits(target, ids, path)
                largest = float(want[want.isfinite()].abs().max())
                torch.testing.assert_close(logits.double(), want, rtol=2e-4, atol=2e-4 * largest)
                apart = (want - plain.logits(target, ids, path)).nan_to_num().abs()
                changed = max(changed, float(apart.max()))
    assert (changed > 0.05) == (name != "plain")  # the key matters, so the comparison sees it


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_tree_that_is_not_its_tokens_in_a_row_is_refused(kind: str, monkeypatch) -> None:
    head = random_head("eagle3", language_model(kind, layers=4))
    monkeypatch.setattr(
        _heads, "_level_of", lambda sizes, device: torch.zeros(sum(sizes), dtype=torch.long)
    )
    with pytest.raises(
        ModelError, match=r"a tree through this head is not what .*% off; give engine.decoder="
    ):
        check_head(head)


def test_the_format_of_speculators(tmp_path: Path) -> None:
    """The same weights give the same head; its ids are indices of hidden states, as vLLM reads
    them; t2d follows from d2t."""
    target = language_model(layers=4)
    settings = {"norm_before_residual": True, "norm_output": True, "num_hidden_layers": 2}
    own = head_folder(tmp_path / "own", target, **settings, **{AUX_LAYERS: [1, 2, 3]})
    theirs = as_speculators(head_folder(tmp_path / "theirs", target, **settings))
    one, other = (load_eagle3(str(folder), target) for folder in (own, theirs))
    assert other.features == (1, 2, 3) and other.model.form == one.model.form
    torch.testing.assert_close(other.model.state_dict(), one.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("raw", "layers", "features"),
    [
        ({}, 32, (2, 16, 29)),
        # SpecForge's default: outputs of layers
        ({"eagle_config": {AUX_LAYERS: [1, 46, 90]}}, 94, (2, 47, 91)),
        ({"eagle_config": {AUX_LAYERS: [2, 30, 58]}}, 61, (2, 30, 58)),  # indices of hidden states
        # outside eagle_config: as vLLM and speculators
        ({AUX_LAYERS: [1, 46, 90]}, 94, (1, 46, 90)),
        ({"eagle_config": {"use_aux_hidden_state": False}}, 36, (-1,)),
        # indices for gpt-oss
        ({"eagle_config": {AUX_LAYERS: [1, 17, 32]}, "of": "gpt_oss"}, 36, (1, 17, 32)),
    ],
)
def test_conventions_of_the_ids(raw: dict, layers: int, features: tuple[int, ...]) -> None:
    target = SimpleNamespace(num_hidden_layers=layers, model_type=raw.pop("of", "qwen3"))
    assert form_of("head", raw, target).features == features


def test_harmless_keys_are_accepted() -> None:
    """The released head of Vicuna 13B says that it has 40 layers, as its target does."""
    target = SimpleNamespace(num_hidden_layers=40, model_type="llama")
    eagle_config = {"use_last_layernorm": True, "next_layer_regular": True}
    raw = {
        "num_hidden_layers": 40,
        "sliding_window": 4096,
        "use_sliding_window": False,
        "eagle_config": eagle_config | {"parallel_draft_step": 1},
    }
    assert form_of("head", raw, target, 1) == form_of("head", {}, target, 1)


def test_a_window_no_longer_than_the_draft_is_refused() -> None:
    target = language_model(layers=4)
    method = method_on(target, random_head("eagle3", target, **SLIDING), "eagle3", length=5)
    with pytest.raises(ModelError, match="its window of 7 tokens is no longer than the draft"):
        method.proposer([[1]], 64)
