"""Heads from disk: the official layouts; what Medusa drafts; EAGLE against runs recorded from the
authors' code. What does not fit: test_refused_files.py."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters._heads import HeadProposer
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from methods.heads.head import Head, load_eagle, load_eagle3
from methods.heads.medusa import MedusaHeads, load_medusa
from methods.rules.lossless import Lossless
from methods.trees import static
from tests.helpers.decoding import method_on
from tests.helpers.tiny_heads import head_json, method_of, save_head
from tests.helpers.tiny_models import VOCAB, language_model

WEIGHTS = "model.safetensors"
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


@pytest.mark.parametrize(
    ("config", "base"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
    ],
)
def test_rotary_base(tmp_path: Path, target, config: dict, base: float) -> None:
    head = loaded(tmp_path, "eagle3", target, {}, **config)
    cos, _ = head.model.rotary(torch.tensor([[7]]))
    frequency = base ** -(torch.arange(0, 12, 2).double() / 12)
    torch.testing.assert_close(cos[0, 0, :6].double(), (7 * frequency).cos(), atol=1e-6, rtol=1e-6)


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
    ("drafter", "rule", "options", "complaint"),
    [
        ("eagle3", "lossless", {"top_k": 43}, r"vocabulary of 42 .* small for drafter\.top_k=43"),
        ("eagle3", "fsd", {}, "infinite where q is 0"),
        ("medusa", "lossless", {"tree": "eagle_25"}, "eagle_25 is 5 tokens deep .* has 4 heads"),
    ],
)
def test_what_a_head_cannot_draft_is_refused(
    drafter: str, rule: str, options: dict, complaint: str
) -> None:
    """More children than it has tokens, a q that covers everything, more tokens than heads."""
    with pytest.raises(ModelError, match=complaint):
        method_of(drafter, rule, length=5, **options).proposer([[1]], 64)


def test_the_draft_is_the_heads_best_guesses() -> None:
    """Tokens, q and logits of every node from the formula, in float64."""
    method = method_of("medusa", Lossless(q_mode="draft"), tree="medusa_63")
    rows = [[3, 1], [2, 9, 4]]
    proposer = method.proposer(rows, 64)
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    proposer.on_features(states, [[0, 2, 4], [1]])
    draft = proposer.propose(rows, torch.zeros(2, 0))
    tree = static.load("medusa_63")
    for row, at in enumerate((4, 1)):
        x = states[row, at].double()
        guesses = []
        for block, out in method.model.model.double():
            y = x + torch.nn.functional.silu(block.linear.weight @ x + block.linear.bias)
            guesses.append(out.weight @ y)
        assert draft.tokens[row, 0] == rows[row][-1]
        for i in range(1, tree.nodes):
            z = guesses[tree.depth[i] - 1]
            token = int(draft.tokens[row, i])
            assert token == z.argsort(descending=True)[tree.ranks[i]]
            assert float(draft.q[row, i]) == pytest.approx(float(z.softmax(-1)[token]), abs=1e-6)
            logits = draft.logits[row, tree.parents[i]].double()
            torch.testing.assert_close(logits, z, atol=1e-4, rtol=1e-4)
    assert draft.parents[0].tolist() == list(tree.parents)
    assert draft.depth[0].tolist() == list(tree.depth)


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


def test_every_cycle_of_the_authors_code(golden, golden_json, watched) -> None:
    """Tokens, tree and accept length of EAGLE-3's own run."""
    target = load_model(str(golden("models/target_llama")))
    head = load_eagle3(str(golden("models/eagle3_llama")), target)
    drafter = registry.drafter("eagle3")(total=60, depth=7, top_k=10)
    method, drafts = method_on(target, head, drafter), watched(HeadProposer)
    for prompt in golden_json("eagle/llama_eagle3_60_7_10.json.gz")["prompts"]:
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
