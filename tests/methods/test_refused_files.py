"""A file of a model, a head, a rule or a tree that does not fit is one line which says what is
wrong: a row for each mechanism, whatever the file."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from safetensors.torch import load_file, save_file

from methods import registry
from methods.drafters.lookup import Suffix
from methods.engine.loading import load_cut, load_model
from methods.heads.eagle3_config import AUX_LAYERS
from methods.heads.head import load_eagle, load_eagle3
from methods.heads.medusa import MedusaHeads, load_medusa
from methods.method import build_method
from methods.rules.classifiers import Classifier
from methods.sampling import Sampling
from methods.trees import static
from tests.helpers.rule_table import ARC_ONE, ARC_THREE, AT, BESIDE, TARGET, classifier
from tests.helpers.tiny_gguf import write_gguf
from tests.helpers.tiny_heads import head_json, save_head
from tests.helpers.tiny_models import VOCAB, language_model, save_cut

Change = Callable[[Path], object]
"""Spoils a file, or a folder of config.json and weights."""
WEIGHTS = "model.safetensors"
OTHER: Any = SimpleNamespace(**{**vars(TARGET), "fingerprint": "xyz", "source": "other"})
pytestmark = pytest.mark.usefixtures("cache")


def keys(**changes: Any) -> Change:
    """config.json with other values; None leaves a key out."""

    def change(folder: Path) -> None:
        raw = json.loads((folder / "config.json").read_text()) | changes
        kept = {name: value for name, value in raw.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def rewrite(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        change(weights)
        save_file(weights, folder / WEIGHTS, {"format": "pt"})

    return rewrite


def without(name: str) -> Change:
    return tensors(lambda weights: weights.pop(name))


def holds(name: str, *shape: int) -> Change:
    return tensors(lambda weights: weights.update({name: torch.zeros(shape)}))


def text(content: str, name: str = "") -> Change:
    return lambda path: (path / name if name else path).write_text(content)


def data(change: Callable[[bytes], bytes]) -> Change:
    return lambda file: file.write_bytes(change(file.read_bytes()))


MODEL: list[tuple[Change, str]] = [
    (keys(num_hidden_layers=4), r"18 missing \(model\.layers\.2\..* and 14 more\)"),
    (keys(intermediate_size=40), r"6 of another shape \(model\.layers\.0\.mlp\.down_proj"),
    (text("{", "generation_config.json"), r"generation_config\.json' is not a valid JSON file"),
]
CUT: list[tuple[Change, str]] = [
    (keys(vocab_size=65), "cut out of a target with vocab_size 65, and .* has 64"),
    (keys(target_layers=4), "4 layers of its target and 1 of its own; llama-4-0 has 4"),
    (without("norm.weight"), r"1 missing \(norm\.weight\)"),
]
LAYER: list[tuple[Change, str]] = [
    (keys(rope_scaling={"type": "su", "factor": 2.0}), "rope_type='su': must be one of default"),
    (keys(rope_scaling="linear"), "rope_scaling='linear': must be an object"),
    (keys(rope_theta=-1), "rope_theta=-1: must be a number above 0"),
    (keys(head_dim=0), "head_dim=0: must be an integer from 1"),
    (keys(intermediate_size=True), "intermediate_size=True"),
    (keys(num_key_value_heads=3), "num_key_value_heads=3: must divide its 4 heads"),
    (keys(hidden_act="swoosh"), "hidden_act='swoosh'"),
    (keys(layer_types="full_attention", sliding_window=8), "layer_types='full"),
    (keys(head_dim=7), "even rotary dimension, but got `head_dim`=7"),
    (keys(rope_scaling={"rope_type": "linear", "factor": 0}), "cannot be computed|no frequenc"),
]
"""Of the layer in config.json, of every head of EAGLE."""


def aux(*ids: Any, **more: Any) -> Change:
    return keys(eagle_config={AUX_LAYERS: list(ids)}, **more)


EAGLE3: list[tuple[Change, str]] = [
    *LAYER,
    (without("midlayer.hidden_norm.weight"), "missing midlayer.hidden_norm.weight"),
    (holds("extra", 1), "unexpected extra"),
    (
        holds("fc.weight", 32, 64),
        "wrong shape of fc.weight 32x64 instead of 32x96",
    ),
    (tensors(lambda weights: weights["d2t"].add_(1)), "d2t and t2d disagree"),
    (tensors(lambda weights: (weights.pop("t2d"), weights["d2t"][3:4].add_(VOCAB))), "missing t2d"),
    (
        tensors(lambda weights: weights["fc.weight"][1, 5].fill_(torch.inf)),
        "NaN or infinite in 1 tensors: fc.weight",
    ),
    (keys(vocab_size=65), "vocabulary has 65 entries, the target's 64"),
    (keys(hidden_size=48), "made for a target of hidden size 48, and llama-4-0 has 32"),
    (keys(intermediate_size=None), "config.json has no intermediate_size"),
    (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    (aux(1, 2, 3), r"\[1, 2, 3\]: vLLM reads these as indices .* outside eagle_config"),
    (aux(0, 2, 4), "4 cannot be read from a target of 4 layers"),
    (aux(2, "x"), "must be a list"),
    (keys(num_aux_hidden_states=4), "num_aux_hidden_states=4"),
    (keys(norm_output=True, eagle_config={"norm_output": False}), "remove the wrong one"),
    (keys(eagle_config={"use_last_layernorm": False}), "False: only True can be run"),
    (keys(eagle_config={"use_aux_hidden_state": False}, fc_norm=True), "nothing is fused"),
    (keys(sliding_window=512), "sliding_window=512: without layer_types"),
    (keys(sliding_window=8, layer_types=["chunked_attention"]), "must all be"),
    (keys(kv_lora_rank=512), "latent attention"),
    (keys(logit_scale=0.5), "scaled logits"),
    (keys(num_hidden_layers=2), "num_hidden_layers=2: its weights have 1"),
    (keys(speculators_model_type="peagle"), "a peagle checkpoint of speculators"),
    (
        keys(speculators_model_type="eagle3", transformer_layer_config={"model_type": "qwen3"}),
        "of type qwen3",
    ),
    (
        keys(speculators_model_type="eagle3", transformer_layer_config={}),
        "no norm_before_residual",
    ),
]
EAGLE: list[tuple[Change, str]] = [
    LAYER[0],
    (keys(speculators_model_type="eagle"), r"only eagle3 can be read \(pair\.eagle3\)"),
    (keys(hidden_size=48), "made for a target of hidden size 48"),
    (without("fc.bias"), r"missing fc\.bias"),
]
MEDUSA: list[tuple[Change, str]] = [
    (
        tensors(lambda weights: weights.clear() or weights.update(fc=torch.ones(2))),
        "no Medusa heads: 0.0.linear.weight is not among its 1",
    ),
    (
        tensors(lambda weights: weights.update(MedusaHeads(5, 16, VOCAB, 1).state_dict())),
        "hidden size 16 and vocabulary 64",
    ),
]
PARTS = r"tiny.gguf: not a whole GGUF file \(.+\); fetch it again$"
GGUF: list[tuple[Change, str]] = [
    (data(lambda whole: whole[:-1]), PARTS),
    (data(lambda whole: whole[:4] + b"\x09" + whole[5:]), PARTS),
    (data(lambda whole: whole[:16] + b"\xff" * 8 + whole[24:]), PARTS),
    (
        data(lambda whole: whole[:16] + struct.pack("<QQsIIQ", 1, 1, b"a", 9, 4, 1 << 60) + whole),
        PARTS,
    ),
]


def gguf_with(*added: tuple[Any, ...], **options: Any) -> Change:
    """The file written with more: (name of the writer's method, its arguments)."""

    def add(writer: GGUFWriter) -> None:
        for method, *given in added:
            getattr(writer, method)(*given)

    return lambda file: write_gguf(file, file.parent / "target", add=add, **options)


def rope(kind: RopeScalingType, *factors: float) -> Change:
    added = [("add_float32", "llama.rope.scaling.factor", factor) for factor in factors]
    return gguf_with(("add_rope_scaling_type", kind), *added)


def numbers(name: str, *values: float) -> Change:
    array = np.array(values, np.float32)
    return gguf_with(("add_tensor", name, array, None, GGMLQuantizationType.F32))


PRE = "tokenizer.ggml.pre"
GGUF += [
    (gguf_with(("add_expert_count", 8)), "llama.expert_count=8"),
    (gguf_with(("add_sliding_window", 128)), "llama.attention.sliding_window=128"),
    (gguf_with(("add_string", "elsewhere.key", "x")), "elsewhere.key='x'"),
    (gguf_with(("add_add_space_prefix", True)), "tokenizer.ggml.add_space_prefix=True"),
    (gguf_with(("add_string", "llama.rope.scaling.factor", "x")), "to any supported types"),
    (gguf_with(("add_string", "tokenizer.ggml.eot_token_id", "x")), "end token 'x' is not applied"),
    (rope(RopeScalingType.LONGROPE, 4.0), "scaling 'longrope' is not"),
    (rope(RopeScalingType.LINEAR, -1.0), "the factor -1.0"),
    (rope(RopeScalingType.YARN), "has no factor"),
    (numbers("rope_freqs.weight", 0, 0, 0, 0), "rope_freqs.weight must hold"),
    (numbers("rope_freqs.weight", 1, 1, 1), "rope_freqs.weight has 3 numbers"),
    (numbers("blk.0.attn_q.bias", *[1] * 32), "blk.0.attn_q.bias"),
    (gguf_with(drop="blk.1.ffn_up.weight"), "lacks weights .* llama needs: model.layers.1.mlp.up"),
    (gguf_with(architecture="clip"), "transformers cannot read its architecture clip; give the"),
    (gguf_with(without=("llama.block_count",)), "does not say llama.block_count"),
    (gguf_with(without=(PRE,)), PRE),
    (gguf_with(("add_tokenizer_pre", "deepseek-llm"), without=(PRE,)), PRE),
]
"""What a file is and says, and is not applied."""
JUDGE, BOTH = classifier("judge", "target"), classifier("autojudge", "both")
RULES: list[tuple[tuple[Any, ...], Any, str]] = [
    (("arc", OTHER), ARC_ONE, r"the target test \(abc\), .* here is other \(xyz\); run"),
    (("arc", TARGET), {"target": "x"}, r"not constants .*: fingerprint: Field required"),
    (
        ("arc", TARGET),
        ARC_THREE.model_copy(update={"edges": [0.5]}),
        "1 edges cannot separate 3 buckets",
    ),
    (("autojudge", AT, AT), BOTH, r"made with the draft d \(def\), and the draft here is t"),
    (("autojudge", AT), BOTH, "and the draft here is none"),
    (("judge", AT, BESIDE), BOTH, "a classifier for rule=autojudge, not rule=judge"),
    (("judge", AT), JUDGE.model_copy(update={"mean": [0.0]}), "coef have 1, 20 and 20 entries"),
    (("coarse_grained", TARGET), {"groups": [[0, 99]]}, "token 99; ids go from 0 to 11"),
    (("coarse_grained", TARGET), {"groups": [[1, 1]]}, "token 1 twice"),
    (("coarse_grained", TARGET), "{", "not a file of token groups"),
]
"""Rule and models, what its file holds, and the complaint."""
TREES = [
    ("source: s\npaths: '0 0.0 0.0'", "node 0.0 is given twice; give every draft node once"),
    ("source: s\npaths: '0 1.0'", "node 1.0 has no parent; add node 1"),
    ("source: s\npaths: '0 0.-1'", "'0.-1' is not a path of ranks"),
    ("source: s\npaths: ''", "no nodes; give at least one path"),
    ("source: s\npaths: [[0], [1]]", "exactly the keys source .text. and paths"),
    ("paths: '0'", "exactly the keys source"),
]
CORPORA = [
    ('{"answers": [{"answer": [1, 99]}]}', "token 99; the target's ids go from 0 to 63"),
    ('{"answers": [{"answer": [-1]}]}', "not a corpus of answers: answers: 0: answer: 0: "),
]


def whole(kind: Any, folder: Path, pair_folder: Path) -> tuple[Path, Callable[[str], object]]:
    """A file or folder that fits, or where the change writes one, and what reads it."""
    target = language_model("llama", layers=4)
    match kind:
        case (rule, *models):
            option = {"arc": "constants", "coarse_grained": "groups"}.get(rule, "classifier")
            target, draft = [*models, None][:2]
            return folder / "given.json", lambda file: registry.rule(rule)(**{option: file}).bind(
                target, draft
            )
        case "model":
            return Path(shutil.copytree(pair_folder / "target", folder / kind)), load_model
        case "cut":
            return save_cut(folder / kind, target, shared=2), partial(load_cut, target=target)
        case "eagle" | "eagle3":
            load = {"eagle": load_eagle, "eagle3": load_eagle3}[kind]
            raw = head_json(target, draft_vocab_size=40)
            return save_head(folder / kind, kind, raw), partial(load, target=target)
        case "medusa":
            torch.manual_seed(0)
            (folder / kind).mkdir()
            (folder / kind / "config.json").write_text("{}")
            save_file(MedusaHeads(5, 32, VOCAB, 1).state_dict(), folder / kind / WEIGHTS)
            return folder / kind, partial(load_medusa, target=target)
        case "gguf":
            (folder / "target").symlink_to(pair_folder / "target")
            write_gguf(folder / "tiny.gguf", folder / "target")
            return folder / "tiny.gguf", load_model
        case "tree":
            return folder / "mine.yaml", static.load
    return folder / "answers.json", lambda path: build_method(
        target, None, Suffix(corpus=path), registry.rule("lossless")(), Sampling(), 3
    ).proposer([[1, 2]], 10)


ROWS = [
    *((kind, change, complaint)
      for kind, rows in (("model", MODEL), ("cut", CUT), ("eagle3", EAGLE3), ("eagle", EAGLE),
                         ("medusa", MEDUSA), ("gguf", GGUF))
      for change, complaint in rows),
    *((kind, text(content), complaint)
      for kind, rows in (("tree", TREES), ("corpus", CORPORA))
      for content, complaint in rows),
    *((rule, text(json.dumps(content, default=Classifier.model_dump)), complaint)
      for rule, content, complaint in RULES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "complaint"), ROWS, ids=[complaint for *_, complaint in ROWS]
)
def test_what_does_not_fit_is_one_line(
    kind: Any, change: Change, complaint: str, tmp_path: Path, pair_folder: Path, cache: Path
) -> None:
    """Nothing of a GGUF file is converted."""
    path, read = whole(kind, tmp_path, pair_folder)
    change(path)
    with pytest.raises(ValueError, match=complaint) as refused:
        read(str(path))
    assert "\n" not in str(refused.value) and path.name in str(refused.value)
    assert [made for made in cache.glob("gguf2/*") if made.suffix != ".lock"] == []
