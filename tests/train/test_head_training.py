"""Head training: it unrolls exactly what the drafter does, goes on after a kill, and writes what
the readers read."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from methods.drafters._heads import DynamicProposer
from methods.drafters.base import DraftSettings
from methods.engine.language_model import LanguageModel
from methods.engine.loading import from_shape, load_model
from methods.engine.source import ModelError
from methods.heads.head import load_eagle, load_eagle3
from methods.heads.medusa import load_medusa
from methods.sampling import Sampling
from methods.trees.dynamic import TreeShape
from models.train.heads.base import FrozenTarget, Slots, choose, unroll
from models.train.heads.loop import measure, train
from models.train.heads.trainers import RECIPES, TRAINERS
from models.train.packing import DataError, PackedBatch, Packer, Records, messages_of
from models.train.pair.data import stream
from models.train.pair.growth import new_model
from models.train.pair.language_model import export
from tests.helpers.tiny_models import decided, language_model

MIX = {"mini_gsm": 0.5, "mini_chat": 0.5}
COMMON = {
    "tokens": 2 * 192 * 16,
    "batch_tokens": 384,
    "row_tokens": 192,
    "slots": 40,
    "step_decay": 0.8,
    "optimiser": "muon",
    "lr": 0.02,
    "adam_lr": 0.005,
    "warmup": 2,
    "decay": 0.5,
    "clip": 1.0,
    "save_every": 4,
}
FEATURE = {"feature_weight": 1.0, "token_weight": 0.5, "top": 5}
OPTIONS = {
    "eagle3": COMMON | {"steps": 4, "draft_vocab": 120, "vocab_batches": 2, "own_head": True},
    "eagle": COMMON | FEATURE | {"steps": 1, "top_weight": 0.0, "noise": 0.2},
    "hass": COMMON | FEATURE | {"steps": 3, "top_weight": 1.0, "noise": 0.0},
    "medusa": COMMON | {"steps": 3, "blocks": 1, "labels": "target"},
}


LOADERS = {"eagle3": load_eagle3, "eagle": load_eagle, "hass": load_eagle, "medusa": load_medusa}


def recipe(kind: str, **changes):
    return RECIPES[kind](**OPTIONS[kind] | changes)


@pytest.fixture(scope="module")
def target(pair_folder, tmp_path_factory) -> LanguageModel:
    """Six layers, hidden size 32, not trained, but decided: its embedding is large."""
    tokenizer = AutoTokenizer.from_pretrained(pair_folder / "target")
    model = new_model(tokenizer, hidden=32, intermediate=48, heads=4, kv_heads=2, layers=6, seed=0)
    decided(model, 0.2)
    folder = tmp_path_factory.mktemp("target")
    export(model, tokenizer, folder)
    return load_model(str(folder))


@pytest.fixture(scope="module")
def packer(target) -> Packer:
    return Packer(target.tokenizer, partial(stream, 0, MIX), length=192, eos_ids=target.eos_ids)


def packed(*texts: list[int]) -> PackedBatch:
    """One row of texts, each a document of its own."""
    ids = [token for text in texts for token in text]
    positions = [i for text in texts for i in range(len(text))]
    documents = [number for number, text in enumerate(texts, start=1) for _ in text]
    rows = (torch.tensor([row]) for row in (ids, positions, documents))
    return PackedBatch(*rows, torch.ones(1, len(ids)))


def trainer_of(kind: str, target: LanguageModel, packer: Packer | None = None, **changes):
    torch.manual_seed(7)
    made = TRAINERS[kind](recipe(kind, **changes), FrozenTarget(target))
    if packer is not None:
        made.prepare(lambda number: packer.batch(number, made.recipe.rows))
    return made


def shaken(trainer):
    """Away from the start as the identity, so that every part of the head matters."""
    torch.manual_seed(8)
    with torch.no_grad():
        for parameter in trainer.head.parameters():
            if parameter.requires_grad:
                parameter.add_(0.15 * torch.randn_like(parameter))
    return trainer


def unrolled(trainer, target, batch, slots):
    """The head's states [R, S, H] after each of four steps, without checkpoints."""
    states = trainer.frozen_target.states(batch, trainer.layers or (-1,))
    embed = trainer.head.embed_tokens or target.model.get_input_embeddings()
    features = trainer.head.fuse(states.features)
    return unroll(trainer.head, embed, features, batch, slots, 4, lambda f, *a: f(*a))


@pytest.mark.parametrize("kind", ["eagle3", "eagle", "hass"])
@torch.no_grad()
def test_training_unrolls_what_the_drafter_drafts(kind, target, packer, tmp_path):
    """A drafter drafts chains after prefixes of a conversation; the same tokens in a training
    batch, behind and before other conversations, give the same distributions at every step."""
    trainer = shaken(trainer_of(kind, target, packer, steps=4))
    trainer.export(tmp_path)
    head = LOADERS[kind](str(tmp_path), target)
    trainer.head.load_state_dict(head.model.state_dict())
    layers = trainer.layers or (-1,)
    filler = packer.batch(3, 1).input_ids[0, :23].tolist()
    conversation = packer.batch(5, 1).input_ids[0, :50].tolist()
    for cut in (9, 30, 47):
        prefix = conversation[: cut + 1]  # the last one is the root
        cache = target.new_cache(1, 128)
        features = target.forward(torch.tensor([prefix[:-1]]), cache, features=layers).features
        proposer = DynamicProposer(
            head, DraftSettings(4, Sampling(), True), [prefix], 128, TreeShape(5, 3, 1)
        )
        proposer.on_features(features, [list(range(cut))])
        draft = proposer.propose([prefix], torch.zeros(1, 0))
        chain = draft.tokens[0].tolist()
        assert chain[0] == prefix[-1] and len(chain) == 5

        batch = packed(filler, prefix + chain[1:], filler)
        slots = Slots(torch.tensor([[4, len(filler) + cut - 1]]), torch.ones(4, 1, 2))
        for step, hidden in enumerate(unrolled(trainer, target, batch, slots)):
            logits = proposer.head.over_target(head.logits(hidden))[0, 1]
            # logits here reach 40, and the drafter adds up in another order: float32 leaves them
            # about 1e-4 apart
            both = (one.softmax(-1) for one in (logits, draft.logits[0, step]))
            assert torch.allclose(*both, atol=1e-4), (cut, step)
            assert logits.argmax() == chain[step + 1]


@torch.no_grad()
def test_an_eagle3_head_may_share_the_targets_lm_head(tmp_path, target, packer):
    trainer = shaken(trainer_of("eagle3", target, packer, own_head=False))
    assert not trainer.head.lm_head.weight.requires_grad
    trainer.export(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    head = load_eagle3(str(tmp_path), target)
    rows = target.model.get_output_embeddings().weight[head.to_target]
    assert torch.equal(head.model.lm_head.weight, rows)
    assert torch.equal(trainer.head.lm_head.weight, rows)
    sizes = from_shape(str(target.source), dtype="float32", device="meta")
    with torch.device("meta"):  # as a dry run does
        shape = load_eagle3(f"random:{tmp_path}", sizes, device="meta").model.lm_head.weight
    assert shape.is_meta and shape.shape == rows.shape


def logits_of(target: LanguageModel, batch: PackedBatch) -> torch.Tensor:
    return target.model(
        input_ids=batch.input_ids,
        position_ids=batch.positions,
        attention_mask=batch.attention_mask(),
    ).logits


@pytest.mark.parametrize(
    ("kind", "labels"), [("eagle3", {}), ("medusa", {}), ("medusa", {"labels": "tokens"})]
)
@torch.no_grad()
def test_losses_are_those_of_single_slots(kind, labels, target, packer):
    """The loss and the ranks of each step, slot by slot from the formula in float64: what is guessed
    behind t is judged by the token k + 2 later."""
    trainer = shaken(trainer_of(kind, target, packer, **labels))
    batch = packer.batch(2, 2)
    slots = choose(batch, trainer.recipe.steps, 12, torch.Generator().manual_seed(0))
    states = trainer.frozen_target.states(batch, trainer.layers)
    logits = logits_of(target, batch).double()
    if kind == "eagle3":
        ids = (torch.arange(120) + trainer.head.d2t).tolist()
        steps = unrolled(trainer, target, batch, slots)
        guesses = [trainer.head.logits(hidden).double() for hidden in steps]
    else:
        ids = list(range(target.vocab_size))
        guesses = trainer.head(states.hidden[torch.arange(2)[:, None], slots.index]).double()
    for k, (loss, rank) in enumerate(trainer.steps(batch, states, slots, torch.Generator())):
        total = weights = 0.0
        for r, m in slots.weight[k].nonzero().tolist():
            t, guess = int(slots.index[r, m]), guesses[k][r, m]
            weights += float(slots.weight[k, r, m])
            assert batch.document[r, t + 2 + k] == batch.document[r, t]
            assert batch.weight[r, t + 2 + k] == 1
            teacher = logits[r, t + 1 + k]
            best = int(teacher.argmax())
            if best not in ids:
                assert rank[r, m] == len(ids)
                continue
            assert rank[r, m] == (guess > guess[ids.index(best)]).sum()
            wanted = batch.input_ids[r, t + 2 + k] if labels else teacher[ids].softmax(-1)
            total += float(torch.nn.functional.cross_entropy(guess, wanted))
        assert weights > 0 and loss.item() == pytest.approx(total / weights, rel=1e-4)


@torch.no_grad()
def test_at_the_start_every_medusa_head_guesses_what_the_lm_head_does(target, packer):
    trainer, batch = trainer_of("medusa", target), packer.batch(2, 2)
    guesses = trainer.head(trainer.frozen_target.states(batch).hidden)
    assert torch.allclose(guesses, logits_of(target, batch).expand(3, -1, -1, -1), atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@torch.no_grad()
def test_the_target_sees_each_packed_conversation_alone(kind, target, packer):
    """Also where layers look back through a window, here shorter than the conversations."""
    model = language_model(kind, layers=4, vocab=target.vocab_size)
    batch = packer.batch(0, 2)
    states = FrozenTarget(model).states(batch, (2, 1))
    for number in batch.document.unique().tolist()[1:4]:
        row, at = (batch.document == number).nonzero().T
        ids = batch.input_ids[row, at][None]
        alone = model.forward(ids, model.new_cache(1, 256), hidden=True, features=(2, 1))
        assert torch.allclose(states.features[row, at], alone.features[0], atol=1e-4)
        assert torch.allclose(states.hidden[row, at], alone.hidden[0], atol=1e-4)


class Killed(Exception):
    pass


def killed_at(step, exercises):
    if step == 6:
        raise Killed
    return stream(0, MIX, step, exercises)


@pytest.mark.parametrize("kind", ["eagle3", "medusa"])
def test_a_killed_run_goes_on_to_the_same_weights(kind, target, packer, tmp_path):
    short = {"tokens": 384 * 10}
    settings = {"device": "cpu", "seed": 3, "name": kind, "identity": "mixture"}
    whole, killed, resumed = (trainer_of(kind, target, **short) for _ in range(3))
    train(whole, packer, tmp_path / "whole", **settings)
    dying = Packer(target.tokenizer, killed_at, length=192, eos_ids=target.eos_ids)
    with pytest.raises(Killed):
        train(killed, dying, tmp_path / "killed", **settings)
    train(resumed, packer, tmp_path / "killed", **settings)
    resumed_weights = resumed.head.state_dict()
    for name, weight in whole.head.state_dict().items():
        assert torch.equal(resumed_weights[name], weight), name
    logs = [(tmp_path / run / "loss.jsonl").read_text() for run in ("whole", "killed")]
    assert logs[0] == logs[1]
    with pytest.raises(ModelError, match="different recipe;"):
        train(trainer_of(kind, target, tokens=384 * 12), packer, tmp_path / "killed", **settings)


@pytest.mark.parametrize("kind", list(OPTIONS))
def test_training_learns_and_what_it_writes_is_read(kind, target, packer, tmp_path):
    fresh, trained = (trainer_of(kind, target, packer, lr=0.05, adam_lr=0.02) for _ in range(2))
    train(trained, packer, tmp_path / "work", device="cpu", seed=0, name=kind, identity="mixture")
    matrices, rest = torch.load(tmp_path / "work" / "run.pt", weights_only=True)["optimisers"]
    stepped = ["ns_steps" in half["param_groups"][0] for half in (matrices, rest)]
    assert stepped == [True, False], "Muon and AdamW"
    batch = packer.batch(99, 2)
    slots = choose(batch, trained.recipe.steps, 192, torch.Generator().manual_seed(0))

    def loss(trainer, seed):
        states, draw = trainer.frozen_target.states(batch, trainer.layers), torch.Generator()
        return trainer.objective(batch, states, slots, draw.manual_seed(seed))[0]

    with torch.no_grad():
        before, after, again = loss(fresh, 0), loss(trained, 0), loss(trained, 1)
    assert after < 0.97 * before and after == again  # EAGLE's noise is of training alone
    ranks = measure(trained, packer, device="cpu", seed=0, batches=1)
    assert len(ranks) == trained.recipe.steps and all(0 < sum(shares) <= 1.0001 for shares in ranks)

    trained.export(tmp_path / "out")
    head = LOADERS[kind](str(tmp_path / "out"), target)
    written = head.model.state_dict()
    for name, tensor in trained.head.state_dict().items():
        rounded = tensor.to(torch.bfloat16).float() if tensor.is_floating_point() else tensor
        assert torch.equal(written[name], rounded), name


def test_records_are_read_and_held_out():
    records = [
        {"messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": "a"}]}
        for i in range(100)
    ]
    source = Records(records, "mine.jsonl", 0)
    trained, held = (
        {conversation[0][1] for conversation in islice(stream, count)}
        for stream, count in ((source.train(0), 2000), (source.held_out(0), 50))
    )
    assert held == {"q0", "q50"}
    assert len(trained) == 98 and not trained & held
    said = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]
    assert messages_of({"conversations": said}, "x") == [("user", "hi"), ("assistant", "yes")]
    with pytest.raises(DataError, match=r"record 3: no 'messages'.*found 'text'"):
        messages_of({"text": "a"}, "record 3")
    with pytest.raises(DataError, match="unknown 'narrator'"):
        messages_of({"messages": [{"role": "narrator", "content": "x"}]}, "record 3")
    with pytest.raises(DataError, match="at least 50"):
        Records(records[:9], "mine.jsonl", 0)
