"""Heads from disk: the official layouts; what Medusa drafts; EAGLE against runs recorded from the
authors' code. What does not fit: test_refused_files.py."""

from __future__ import annotations

import copy
import json
import os
import pickle
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods import registry
from methods.decode import Limits, Request, generate
from methods.drafters.medusa import MedusaDrafter
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from methods.heads.head import load_eagle, load_eagle3
from methods.heads.medusa import MedusaHeads, load_medusa
from methods.method import build_method
from methods.rules.lossless import Lossless
from methods.sampling import Sampling
from methods.trees import static
from tests.helpers.tiny_heads import fitted_medusa, head_json, random_head, save_head
from tests.helpers.tiny_models import VOCAB, language_model, prompts, share

WEIGHTS = "model.safetensors"
LOAD = {"eagle3": load_eagle3, "eagle": load_eagle}


@pytest.fixture
def target():
    return language_model("llama", layers=3)


@pytest.fixture
def folder(tmp_path: Path, target) -> Path:
    return save_head(tmp_path / "eagle3", "eagle3", head_json(target, draft_vocab_size=40))


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def reconfigure(folder: Path, **changes) -> None:
    raw = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))


@pytest.mark.parametrize("layout", ["safetensors", "bin", "sharded safetensors", "sharded bin"])
def test_every_layout_holds_the_same(folder: Path, target, layout: str) -> None:
    want = load_eagle3(str(folder), target).model.state_dict()
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names, save = ("model", "safetensors"), save_file
    if layout.endswith("bin"):
        names, save = ("pytorch_model", "bin"), torch.save
    if layout.startswith("sharded"):
        weight_map = {name: f"{names[0]}-{len(name) % 2}.{names[1]}" for name in tensors}
        for file in set(weight_map.values()):
            save(
                {name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file
            )
        index = folder / ".".join([*names, "index.json"])
        index.write_text(json.dumps({"weight_map": weight_map}))
    else:
        save(tensors, folder / ".".join(names))
    loaded = load_eagle3(str(folder), target).model.state_dict()
    assert loaded.keys() == want.keys()
    assert all(torch.equal(loaded[name], want[name]) for name in want)


def test_the_head_dimension_is_read_off_the_tensors(folder: Path, target) -> None:
    reconfigure(folder, head_dim=None)
    assert load_eagle3(str(folder), target).model.config.head_dim == 12  # and not 32 / 4


@pytest.mark.parametrize(
    ("config", "base"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6),
    ],
)
def test_rotary_base(folder: Path, target, config: dict, base: float) -> None:
    reconfigure(folder, **config)
    cos, _ = load_eagle3(str(folder), target).model.rotary(torch.tensor([[7]]))
    frequency = base ** -(torch.arange(0, 12, 2).double() / 12)
    torch.testing.assert_close(cos[0, 0, :6].double(), (7 * frequency).cos(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", ["eagle3", "eagle"])
def test_an_embedding_of_its_own_wins(tmp_path: Path, target, kind: str) -> None:
    folder = save_head(tmp_path / kind, kind, head_json(target))
    assert LOAD[kind](str(folder), target).embed is target.model.get_input_embeddings()
    own = torch.randn(VOCAB, 32)
    rewrite(folder, lambda t: t.update({"embed_tokens.weight": own}))
    assert torch.equal(LOAD[kind](str(folder), target).embed.weight, own)


def test_a_whole_vocabulary_may_carry_its_map(tmp_path: Path, target) -> None:
    """The official loader drops both maps where draft and target vocabulary are the same."""
    folder = save_head(tmp_path, "eagle3", head_json(target, draft_vocab_size=VOCAB))
    rewrite(
        folder,
        lambda t: t.update(d2t=torch.zeros(VOCAB, dtype=torch.int64), t2d=torch.ones(VOCAB).bool()),
    )
    head = load_eagle3(str(folder), target)
    assert head.full_vocabulary and head.to_target is None and head.draft_vocab == VOCAB


def test_the_bias_follows_the_config(tmp_path: Path, target) -> None:
    folder = save_head(tmp_path, "eagle", head_json(target, bias=False))
    assert load_eagle(str(folder), target).model.fc.bias is None


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
        ("lossless", {"top_k": 43}, r"vocabulary of 42 tokens is too small for drafter\.top_k=43"),
        ("fsd", {}, "infinite where q is 0"),
    ],
)
def test_a_reduced_vocabulary_is_refused(target, rule, options, complaint) -> None:
    """Where a context has more children than tokens, or q must cover everything."""
    head, drafter = random_head("eagle3", target), registry.drafter("eagle3")(**options)
    with pytest.raises(ModelError, match=complaint):
        method = build_method(target, head, drafter, registry.rule(rule)(), Sampling(1.0), 5)
        method.drafter.start(target, head, method.draft, [[1]], 64)


NEW = 24
COLD = Sampling(0.0)


@cache
def target_and_heads(kind: str):
    target = language_model(kind, layers=3)
    heads = fitted_medusa(target, prompts(6), new=NEW)
    share(f"Medusa heads of {kind}", heads.model)
    return target, heads


def medusa(kind="llama", rule=None, tree="medusa_63", sampling=COLD):
    return build_method(
        *target_and_heads(kind), MedusaDrafter(tree=tree), rule or Lossless(), sampling, 4
    )


def test_the_draft_is_the_heads_best_guesses():
    """Tokens, q and logits of every node from the formula, in float64."""
    target, model = target_and_heads("llama")
    heads = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in heads.model.parameters():  # blocks that are not the identity
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
    method = build_method(
        target, heads, MedusaDrafter(), Lossless(q_mode="draft"), Sampling(1.0), 4
    )
    rows = [[3, 1], [2, 9, 4]]
    proposer = method.drafter.start(target, heads, method.draft, rows, 64)
    states = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))
    proposer.on_features(states, [[0, 2, 4], [1]])
    draft = proposer.propose(rows, torch.zeros(2, 0))
    tree = static.load("medusa_63")
    for row, at in enumerate((4, 1)):
        x = states[row, at].double()
        guesses = []
        for head in heads.model.double():
            y = x + torch.nn.functional.silu(head[0].linear.weight @ x + head[0].linear.bias)
            guesses.append(head[1].weight @ y)
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


def checkpoint(folder, tensors, file="medusa_lm_head.pt"):
    folder.mkdir(exist_ok=True)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "org/model"}
    (folder / "config.json").write_text(
        json.dumps(config)
    )  # the published files say 2 where they hold 5
    path = folder / file
    torch.save(tensors, path) if path.suffix in (".pt", ".bin") else save_file(tensors, path)
    return str(folder)


def tensors_of(heads=5, layers=1, size=32, vocab=VOCAB):
    torch.manual_seed(0)
    return {
        name: tensor.clone()
        for name, tensor in MedusaHeads(heads, size, vocab, layers).state_dict().items()
    }


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", WEIGHTS])
def test_official_files(tmp_path, file, layers):
    given = tensors_of(layers=layers)
    written = dict(given)
    if file == WEIGHTS:  # Medusa-2: heads and backbone in one checkpoint
        written = {f"medusa_head.{name}": tensor for name, tensor in given.items()}
        written["lm_head.weight"] = torch.ones(3, 2)
    loaded = load_medusa(checkpoint(tmp_path / "heads", written, file), language_model())
    assert len(loaded.model) == 5 and loaded.model.layers == layers
    assert loaded.vocab_size == VOCAB and loaded.full_vocabulary
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, given[name])


def test_a_shape_alone_gives_random_heads(tmp_path):
    source = f"random:{checkpoint(tmp_path / 'heads', tensors_of(3))}"
    assert len(load_medusa(source, language_model()).model) == 3
    (tmp_path / "heads" / "medusa_lm_head.pt").unlink()
    loaded = load_medusa(source, language_model()).model
    assert len(loaded) == 2 and loaded[0][-1].weight.std() > 0  # config.json says 2


def test_a_tree_deeper_than_the_heads_is_refused():
    with pytest.raises(ModelError, match="eagle_25 is 5 tokens deep and fitted has 4 heads"):
        medusa(tree="eagle_25")


SHARED = Path(os.environ.get("LEEWAY_SHARED", Path(__file__).parents[2].parent / "shared"))
RECORDED = sorted(
    file.name.removesuffix(".json.gz") for file in SHARED.glob("golden/eagle/*.json.gz")
)
HEADS = {
    "eagle3": "eagle3",
    "eagle2": "eagle2",
    "eagle1": "eagle2",
    "eagle": "eagle2",
    "hass": "hass",
}


@pytest.fixture(
    scope="module",
    params=RECORDED
    or [
        pytest.param(
            "",
            marks=pytest.mark.skip(
                f"no reference data at {SHARED}/golden/eagle: set LEEWAY_SHARED to the folder "
                "that has golden/"
            ),
        )
    ],
)
def case(request, golden, golden_json):
    """(recorded run, method): the files are named target_head_total_depth_topk."""
    target_name, head_name, total, depth, top_k = request.param.split("_")
    drafter = registry.drafter(HEADS[head_name])
    target = load_model(str(golden(f"models/target_{target_name}")))
    folder = next(
        golden(f"models/{name}_{target_name}")
        for name in (head_name, "eagle2", "eagle", "eagle1", "hass")
        if (SHARED / f"golden/models/{name}_{target_name}").exists()
    )
    head = drafter.load(str(folder), target, revision=None, dtype="float32", device="cpu")
    options = drafter(total=int(total), depth=int(depth), top_k=int(top_k))
    method = build_method(target, head, options, registry.rule("greedy")(), Sampling(0.0), 1)
    return request.param, golden_json(f"eagle/{request.param}.json.gz"), method


def test_every_cycle(case, drafts) -> None:
    _, recorded, method = case
    for prompt in recorded["prompts"]:
        drafts.clear()
        ids = prompt["input_ids"]
        expected = [*prompt["output_ids"][len(ids) :], prompt["cycles"][-1]["next_token"]]
        [loaded] = generate(method, [Request(ids, "golden")], Limits(len(expected), frozenset()))
        assert loaded.output_ids[0] == prompt["first_token"]
        for (_, draft), accepted, cycle in zip(
            drafts, loaded.accepted, prompt["cycles"], strict=True
        ):
            where = f"prompt {prompt['prompt_index']} at {cycle['input_len']}"
            assert draft.tokens[0].tolist() == cycle["draft_tokens"], where
            assert draft.parents[0].tolist() == cycle["parents"], where
            assert draft.depth[0].tolist() == cycle["tree_position_ids"], where
            assert accepted == cycle["accept_length"], where
        assert loaded.output_ids == expected
