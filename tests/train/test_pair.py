"""The training recipe: growth keeps the function, batches are functions of the step, a killed run
goes on unchanged."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
import torch

from models.train.packing import PackedBatch, Packer
from models.train.pair.data import stream
from models.train.pair.growth import grow, new_model
from models.train.pair.language_model import export, loss_of, train
from models.train.pair.recipe import Recipe, Stage
from models.train.pair.tokenizer import train_tokenizer

MIX = {"mini_gsm": 0.5, "mini_instruct": 0.5}
RECIPE = Recipe(
    hidden=32,
    intermediate=48,
    heads=4,
    kv_heads=2,
    exit_layers=[1],
    exit_weight=0.1,
    row_tokens=192,
    lr=0.02,
    adam_lr=0.003,
    warmup=2,
    prompt_weight=0.1,
    save_every=3,
    compile=False,
    growth=[
        {"layers": 1, "tokens": 576 * 4, "batch_tokens": 576},
        {"layers": 2, "tokens": 384 * 6, "batch_tokens": 384},
    ],
)
ROWS, DATA = 3, partial(stream, 0, MIX)


@pytest.fixture(scope="module")
def tokenizer():
    conversations = islice(stream(0, MIX, 0), 300)
    texts = (content for messages in conversations for _, content in messages)
    return train_tokenizer(texts, 600)


@pytest.fixture(scope="module")
def packer(tokenizer):
    return Packer(
        tokenizer,
        DATA,
        length=320,
        eos_ids=frozenset([tokenizer.eos_token_id]),
        prompt_weight=0.1,
    )


def tiny(tokenizer, layers: int):
    return new_model(
        tokenizer, hidden=32, intermediate=48, heads=4, kv_heads=2, layers=layers, seed=0
    )


def loss_on(model, batch: PackedBatch) -> float:
    with torch.no_grad():
        return float(loss_of(model, batch, [], 0.0))


def test_the_tokenizer_round_trips_and_splits_digits(tokenizer):
    text = "Mia has 127 + 9 = 136 cards.\n#### 136"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [t for t in tokenizer.convert_ids_to_tokens(ids) if t.isdigit()] == list("1279136136")
    message = {"role": "user", "content": "hi"}
    chat = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
    assert chat == "<|user|> hi<|end|><|assistant|>"


def test_packing_matches_the_chat_template(tokenizer, packer):
    said = ("Who?", "Mia.", "When?", "Now.")
    conversation = list(zip(("user", "assistant") * 2, said, strict=True))
    ids, weights = packer.encode(conversation)
    messages = [{"role": role, "content": content} for role, content in conversation]
    assert ids == tokenizer.apply_chat_template(messages, return_dict=False)
    answered = tokenizer.decode([i for i, w in zip(ids, weights, strict=True) if w == 1.0])
    assert answered == " Mia.<|end|> Now.<|end|>"


def test_batches_are_functions_of_the_step_and_of_the_share_of_exercises(tokenizer, packer):
    first, again, other, exercises = (
        packer.batch(*asked) for asked in ((5, ROWS), (5, ROWS), (6, ROWS), (5, ROWS, 1.0))
    )
    assert torch.equal(first.input_ids, again.input_ids)
    assert not torch.equal(first.input_ids, other.input_ids)
    assert (first.document > 0).float().mean() > 0.7
    assert "####" in tokenizer.decode(first.input_ids.flatten())
    assert "####" not in tokenizer.decode(exercises.input_ids.flatten())


def test_growth_keeps_the_function(tokenizer, packer):
    small = tiny(tokenizer, 2)
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    big, batch = grow(small, 6), packer.batch(0, ROWS)
    with torch.no_grad():
        found = [model(batch.input_ids).logits for model in (small, big)]
    assert torch.allclose(*found, atol=1e-5) and big.config.num_hidden_layers == 6
    loss_of(big, batch, [], 0.0).backward()
    outputs = [weight for name, weight in big.named_parameters() if "o_proj" in name]
    assert all(weight.grad.abs().sum() > 0 for weight in outputs)
    with pytest.raises(ValueError, match="multiple"):
        grow(small, 3)


class Killed(Exception):
    pass


def killed_at(step, exercises):
    if step == 5:
        raise Killed
    return stream(0, MIX, step, exercises)


def trained(tokenizer, folder, recipe=RECIPE, data=DATA):
    return train(recipe, tokenizer, data, folder, device="cpu", seed=3, name="test")


def test_a_killed_run_goes_on_to_the_same_weights(tokenizer, tmp_path):
    whole = trained(tokenizer, tmp_path / "whole")
    with pytest.raises(Killed):
        trained(tokenizer, tmp_path / "killed", data=killed_at)
    resumed = trained(tokenizer, tmp_path / "killed")
    assert resumed.config.num_hidden_layers == 2
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_training_learns_exports_and_goes_on_from_there(tokenizer, packer, tmp_path):
    """From existing weights it begins where the first run ended; wrong sizes and a missing folder
    are one line."""
    from transformers import AutoModelForCausalLM

    growth = [Stage(layers=1, tokens=576 * 30, batch_tokens=576)]
    recipe = RECIPE.model_copy(update={"growth": growth, "exit_layers": []})
    batch = packer.batch(99, ROWS)

    def again(name, **changes):
        return trained(tokenizer, tmp_path / name, recipe.model_copy(update=changes))

    first = again("first")
    assert loss_on(first, batch) < loss_on(tiny(tokenizer, 1), batch) - 0.3
    start = {"start": str(tmp_path / "out")}
    export(first, tokenizer, tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.dtype == torch.bfloat16 and loaded.config.eos_token_id == tokenizer.eos_token_id
    still = again("still", **start, lr=0.0, adam_lr=0.0)
    for before, after in zip(first.parameters(), still.parameters(), strict=True):
        assert torch.equal(before.to(torch.bfloat16), after.to(torch.bfloat16))
    better = again("more", **start, autocast=True)
    assert next(better.parameters()).dtype == torch.float32
    assert loss_on(better, batch) < loss_on(first, batch) - 0.1
    for wrong, message in (
        (start | {"hidden": 64}, "hidden 32, not 64"),
        ({"start": "nowhere"}, "no such checkpoint"),
    ):
        with pytest.raises(ValueError, match=message):
            again("wrong", **wrong)


def test_a_stage_has_its_own_batch_size_and_the_rate_warms_up_and_ends_at_zero():
    assert [end for _, end in RECIPE.plan()] == [4, 10] and RECIPE.steps == 10
    rates = [RECIPE.rate(step) for step in range(11)]
    assert rates[0] == 0.5 and max(rates) == 1.0 and rates[9] < 0.25 and rates[10] == 0.0
