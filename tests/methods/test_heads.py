"""Heads and models from disk: the layouts and keys that are published; draft models cut out of
their target; EAGLE against runs recorded from the authors' code. What does not fit:
test_refused_files.py."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters import _heads
from methods.drafters._heads import HeadProposer, check_head
from methods.engine.loading import load_cut, load_model
from methods.engine.source import ModelError, ModelSource
from methods.heads.eagle3_config import AUX_LAYERS, form_of
from methods.heads.head import Head, load_eagle, load_eagle3
from methods.heads.medusa import MedusaHeads, load_medusa
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import head_json, method_of, random_head, save_head
from tests.helpers.tiny_models import ARCHITECTURES, VOCAB, language_model, prompts, save_cut

WEIGHTS = "model.safetensors"
SHARED = os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared")
GOLDEN = Path(SHARED) / "golden"
LOAD = {"eagle3": load_eagle3, "eagle": load_eagle}


@pytest.fixture
def target():
    return language_model(layers=3)


@pytest.fixture
def folder(tmp_path: Path, target) -> Path:
    return save_head(tmp_path / "eagle3", "eagle3", head_json(target, draft_vocab_size=40))


def loaded(folder: Path, kind: str, target, tensors: dict[str, torch.Tensor], **config) -> Head:
    """A head of this config, with tensors of its own."""
    save_head(folder, kind, head_json(target, **config))
    save_file(load_file(folder / WEIGHTS) | tensors, folder / WEIGHTS)
    return LOAD[kind](str(folder), target)


@pytest.mark.parametrize("layout", ["safetensors", "bin", "sharded safetensors", "sharded bin"])
def test_every_layout_holds_the_same(folder: Path, target, layout: str) -> None:
    want = load_eagle3(str(folder), target).model.state_dict()
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    stem, ending, save = "model", "safetensors", save_file
    if layout.endswith("bin"):
        stem, ending, save = "pytorch_model", "bin", torch.save
    if layout.startswith("sharded"):
        weight_map = {name: f"{stem}-{len(name) % 2}.{ending}" for name in tensors}
        for file in set(weight_map.values()):
            held = {name: tensors[name] for name in tensors if weight_map[name] == file}
            save(held, folder / file)
        index = folder / f"{stem}.{ending}.index.json"
        index.write_text(json.dumps({"weight_map": weight_map}))
    else:
        save(tensors, folder / f"{stem}.{ending}")
    found = load_eagle3(str(folder), target).model.state_dict()
    torch.testing.assert_close(found, want, rtol=0, atol=0)


def test_the_head_dimension_is_read_off_the_tensors(folder: Path, target) -> None:
    raw = head_json(target, draft_vocab_size=40)
    del raw["head_dim"]
    (folder / "config.json").write_text(json.dumps(raw))
    assert load_eagle3(str(folder), target).model.config.head_dim == 12  # and not 32 / 4


@pytest.mark.parametrize("kind", ["eagle3", "eagle"])
def test_an_embedding_of_its_own_wins(tmp_path: Path, target, kind: str) -> None:
    borrowed = loaded(tmp_path, kind, target, {}, bias=False)
    assert borrowed.embed is target.model.get_input_embeddings()
    assert kind == "eagle3" or borrowed.model.fc.bias is None
    own = torch.randn(VOCAB, 32)
    head = loaded(tmp_path, kind, target, {"embed_tokens.weight": own})
    assert torch.equal(head.embed.weight, own)


def test_a_whole_vocabulary_may_carry_its_map(tmp_path: Path, target) -> None:
    """The official loader drops both maps where draft and target vocabulary are the same."""
    maps = {"d2t": torch.zeros(VOCAB, dtype=torch.int64), "t2d": torch.ones(VOCAB).bool()}
    head = loaded(tmp_path, "eagle3", target, maps, draft_vocab_size=VOCAB)
    assert head.full_vocabulary and head.to_target is None and head.draft_vocab == VOCAB


def as_speculators(folder: Path) -> None:
    """Writes the head in the folder as speculators does, without t2d."""
    raw = json.loads((folder / "config.json").read_text()) | {"model_type": "llama"}
    del raw[AUX_LAYERS]
    own = {key: raw.pop(key) for key in ("draft_vocab_size", *FORM)}
    whole = {
        "architectures": ["Eagle3DraftModel"],
        "model_type": "speculators",
        "speculators_model_type": "eagle3",
        "speculators_config": {"algorithm": "eagle3"},
        "norm_before_fc": False,
        "fc_norm": False,
        "target_hidden_size": None,
        AUX_LAYERS: [1, 2, 3],
        "transformer_layer_config": raw,
    }
    (folder / "config.json").write_text(json.dumps(whole | own))
    tensors = load_file(folder / WEIGHTS)
    del tensors["t2d"]
    renamed = {name.replace("midlayer.", "layers.0."): value for name, value in tensors.items()}
    save_file(renamed | {"verifier_norm.weight": torch.ones(32)}, folder / WEIGHTS)


FORM = {"norm_before_residual": True, "norm_output": True}


def test_the_format_of_speculators(tmp_path: Path) -> None:
    """The same weights give the same head; its ids are indices of hidden states, as vLLM reads
    them; t2d follows from d2t."""
    form = FORM | {"num_hidden_layers": 2, "draft_vocab_size": 40, AUX_LAYERS: [1, 2, 3]}
    norms = {
        f"midlayer.{name}.weight": torch.rand(32)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    }
    target = language_model(layers=4)
    ours = loaded(tmp_path, "eagle3", target, norms, **form)
    as_speculators(tmp_path)
    theirs = load_eagle3(str(tmp_path), target)
    assert theirs.features == (1, 2, 3) and theirs.model.form == ours.model.form
    torch.testing.assert_close(theirs.model.state_dict(), ours.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("raw", "layers", "features"),
    [
        # SpecForge's default: outputs of layers
        ({"eagle_config": {AUX_LAYERS: [1, 46, 90]}}, 94, (2, 47, 91)),
        ({"eagle_config": {AUX_LAYERS: [2, 30, 58]}}, 61, (2, 30, 58)),  # indices of hidden states
        # outside eagle_config: as vLLM and speculators
        ({AUX_LAYERS: [1, 46, 90]}, 94, (1, 46, 90)),
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


def test_a_window_no_longer_than_the_draft_is_refused(target) -> None:
    window = {"layer_types": ["sliding_attention"], "sliding_window": 7}
    method = method_on(target, random_head("eagle3", target, **window), "eagle3", length=5)
    with pytest.raises(ModelError, match="its window of 7 tokens is no longer than the draft"):
        method.proposer([[1]], 64)


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


class Trap:
    def __reduce__(self):
        return print, ("a pickle ran",)


def test_pickles_cannot_run_anything(folder: Path, target, capsys) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": Trap()}, protocol=2))
    with pytest.raises(ModelError, match="cannot be read as tensors"):
        load_eagle3(str(folder), target)
    assert "a pickle ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rule", "options", "complaint"),
    [
        ("lossless", {"top_k": 43}, r"vocabulary of 42 .* small for drafter\.top_k=43"),
        ("fsd", {}, "infinite where q is 0"),
    ],
)
def test_what_a_head_cannot_draft_is_refused(rule: str, options: dict, complaint: str) -> None:
    """More children than it has tokens, a q that covers everything."""
    with pytest.raises(ModelError, match=complaint):
        method_of("eagle3", rule, length=5, **options).proposer([[1]], 64)


def checkpoint(folder: Path, tensors: dict, file: str = "medusa_lm_head.pt") -> str:
    """The published config.json says 2 heads where the files hold 5."""
    folder.mkdir()
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "org/model"}
    (folder / "config.json").write_text(json.dumps(config))
    save = torch.save if file.endswith(".pt") else save_file
    save(tensors, folder / file)
    return str(folder)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", WEIGHTS])
def test_official_files(tmp_path: Path, file: str, layers: int) -> None:
    given = MedusaHeads(5, 32, VOCAB, layers).state_dict()
    written = given
    if file == WEIGHTS:  # Medusa-2: heads and backbone in one checkpoint
        written = {f"medusa_head.{name}": tensor for name, tensor in given.items()}
        written["lm_head.weight"] = torch.ones(3, 2)
    heads = load_medusa(checkpoint(tmp_path / "heads", written, file), language_model())
    assert len(heads.model) == 5 and heads.model.layers == layers
    assert heads.vocab_size == VOCAB and heads.full_vocabulary
    torch.testing.assert_close(heads.model.state_dict(), given, rtol=0, atol=0)


def test_a_shape_alone_gives_random_heads(tmp_path: Path) -> None:
    tensors = MedusaHeads(3, 32, VOCAB).state_dict()
    source = f"random:{checkpoint(tmp_path / 'heads', tensors)}"
    assert len(load_medusa(source, language_model()).model) == 3
    (tmp_path / "heads" / "medusa_lm_head.pt").unlink()
    heads = load_medusa(source, language_model()).model
    assert len(heads) == 2 and heads[0][-1].weight.std() > 0  # config.json says 2


@pytest.mark.skipif(
    not GOLDEN.is_dir(),
    reason=f"no reference data at {GOLDEN}: set LEEWAY_SHARED to the folder that has golden/",
)
def test_every_cycle_of_the_authors_code(watched) -> None:
    """Tokens, tree and accept length of EAGLE-3's own run."""
    target = load_model(str(GOLDEN / "models" / "target_llama"))
    head = load_eagle3(str(GOLDEN / "models" / "eagle3_llama"), target)
    drafter = registry.drafter("eagle3")(total=60, depth=7, top_k=10)
    method, drafts = method_on(target, head, drafter), watched(HeadProposer)
    file = GOLDEN / "eagle" / "llama_eagle3_60_7_10.json.gz"
    recorded = gzip.decompress(file.read_bytes())
    for prompt in json.loads(recorded)["prompts"]:
        drafts.clear()
        ids = prompt["input_ids"]
        expected = [*prompt["output_ids"][len(ids) :], prompt["cycles"][-1]["next_token"]]
        [run] = generate(method, [Request(ids, "golden")], Limits(len(expected), frozenset()))
        assert run.output_ids[0] == prompt["first_token"]
        cycles = zip(drafts, run.accepted, prompt["cycles"], strict=True)
        for (_, draft, _), accepted, cycle in cycles:
            where = f"prompt {prompt['prompt_index']} at {cycle['input_len']}"
            assert draft.tokens[0].tolist() == cycle["draft_tokens"], where
            assert draft.parents[0].tolist() == cycle["parents"], where
            assert draft.depth[0].tolist() == cycle["tree_position_ids"], where
            assert accepted == cycle["accept_length"], where
        assert run.output_ids == expected


@pytest.fixture
def model(pair_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(pair_folder / "target", tmp_path / "target")


def test_tables_that_are_computed_anew_are_no_surplus(model: Path) -> None:
    want, weights = load_model(str(model)).model.state_dict(), model / WEIGHTS
    surplus = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "medusa_head.0.1.weight": torch.ones(2, 2),
    }
    save_file(load_file(weights) | surplus, weights, {"format": "pt"})
    assert load_model(str(model)).model.state_dict().keys() == want.keys()


def test_thinking_is_switched_in_the_template(model: Path) -> None:
    """As Qwen3's template reads it: an empty thought precedes the answer where thinking is off."""
    said = [{"role": "user", "content": "3 + 4?"}]
    template = (
        "{{ messages[0]['content'] }}{% if enable_thinking is defined and enable_thinking is "
        "false %}<think></think>{% endif %}"
    )
    (model / "chat_template.jinja").write_text(template)
    texts = {
        thinking: (own := load_model(str(model), thinking=thinking)).decode(own.encode(said))
        for thinking in (None, True, False)
    }
    assert texts == {None: "3 + 4?", True: "3 + 4?", False: "3 + 4?<think></think>"}
    (model / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    with pytest.raises(ModelError, match=r"knows no enable_thinking; give pair\.thinking=null"):
        load_model(str(model), thinking=False)


@pytest.mark.parametrize("kind", ARCHITECTURES)
@torch.no_grad()
def test_a_cut_is_the_targets_first_layers_and_its_own(kind: str, tmp_path: Path) -> None:
    target = language_model(kind, layers=4)
    folder = save_cut(tmp_path / "cut", target, shared=2, noise=0.1)
    cut, own = load_cut(str(folder), target), load_file(folder / WEIGHTS)
    assert ModelSource.of(str(folder)).is_cut
    assert cut.layers == 3 and cut.model.config.num_hidden_layers == 3
    whole = copy.deepcopy(target.first_layers(3)).model
    parts = {f"model.{name.replace('layers.0', 'layers.2')}": x for name, x in own.items()}
    assert not whole.load_state_dict(parts, strict=False).unexpected_keys
    [ids] = prompts(1, low=12, high=12)
    want = whole(torch.tensor([ids])).logits
    assert torch.allclose(cut.model(torch.tensor([ids])).logits, want, atol=1e-4)
