"""Reasoning is neither scored nor told in later turns: lm-eval's meaning of the mark that ends
it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from lm_eval.models.utils import postprocess_generated_text
from tokenizers import AddedToken
from transformers import AutoTokenizer

from bench.config.paths import PROJECT
from bench.run.answer import answer, limits_of, think_end_of
from methods.batch import Generation
from methods.decode import Limits, Request, text_of
from methods.engine.language_model import LanguageModel
from tasks.base import Prompt, TaskOptions

CHANNELS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")


def model_of(
    control: Sequence[str] = (), plain: Sequence[str] = (), template: str = ""
) -> LanguageModel:
    """A tokenizer of the shipped pair that knows these tokens too; `template` is added to a chat
    template that prints what it is given."""
    tokenizer = AutoTokenizer.from_pretrained(PROJECT / "models/tiny/target")
    tokenizer.add_tokens([AddedToken(name, special=True) for name in control])
    tokenizer.add_tokens([AddedToken(name, special=False) for name in plain])
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
        f"{{# {template} #}}"
    )
    embedding = SimpleNamespace(weight=SimpleNamespace(shape=(len(tokenizer),)))
    shape = SimpleNamespace(
        get_input_embeddings=lambda: embedding,
        generation_config=SimpleNamespace(eos_token_id=None),
    )
    return LanguageModel("thinking", shape, tokenizer, "test")


THOUGHT, FINAL = "I think of 12 hens.\n", "the answer is b."
MODELS = {
    "Qwen 3": (model_of(plain=["<think>", "</think>"]), f"<think>\n{THOUGHT}</think>\n\n"),
    "opened by the template": (model_of(plain=["</think>"]), f"{THOUGHT}</think>\n\n"),
    "a template's own words": (
        model_of(template="content.split('</think>')[-1]"),
        f"<think>{THOUGHT}</think>",
    ),
    "Magistral": (model_of(["[THINK]", "[/THINK]"]), f"[THINK]{THOUGHT}[/THINK]"),
    "Seed": (model_of(["<seed:think>", "</seed:think>"]), f"<seed:think>{THOUGHT}</seed:think>"),
    "Cohere": (
        model_of(["<|START_THINKING|>", "<|END_THINKING|>"]),
        f"<|START_THINKING|>{THOUGHT}<|END_THINKING|>",
    ),
    "gpt-oss": (
        model_of(CHANNELS),
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "twice": (model_of(["[/THINK]"]), f"{THOUGHT}[/THINK]{THOUGHT} [/THINK] "),
    "none": (model_of(["[THINK]", "[/THINK]"], ["</think>"]), ""),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_text_of_an_answer_is_what_follows_its_reasoning(name):
    model, reasoning = MODELS[name]
    ids = model.tokenizer.encode(reasoning + FINAL, add_special_tokens=False)
    generation = Generation(output_ids=[*ids, model.tokenizer.eos_token_id])
    assert text_of(generation, (), model, think_end=model.think_end) == FINAL
    assert text_of(generation, (" is b",), model, think_end=model.think_end) == "the answer"


@pytest.mark.parametrize(
    "text",
    [
        f"<think>{THOUGHT}</think>\n\n {FINAL}",
        f"{THOUGHT}</think>{FINAL}</think> {FINAL}",
        FINAL,
        f"{THOUGHT}</think>",
        f"<think>{THOUGHT} and so on until the last token",
    ],
)
@pytest.mark.parametrize("stop", [(), ("answer",), ("\n\n", " b")])
def test_as_lm_eval_takes_a_mark_that_the_text_shows(text, stop):
    model = model_of(plain=["</think>"])
    generation = Generation(output_ids=model.tokenizer.encode(text, add_special_tokens=False))
    answer = text_of(generation, stop, model, think_end=("</think>",))
    assert answer == postprocess_generated_text(text, list(stop), "</think>")


@pytest.mark.parametrize(
    ("tokens", "given", "wanted"),
    [
        (("[THINK]", "[/THINK]"), None, ("[/THINK]",)),
        (("[THINK]", "[/THINK]"), "", ()),
        (("[THINK]", "[/THINK]"), "Final answer:", ("Final answer:",)),
        (("<think>", "<|channel|>"), None, ()),
    ],
)
def test_the_option(tokens, given, wanted):
    options = TaskOptions(max_new_tokens=8, think_end=given)
    assert think_end_of(options, model_of(tokens)) == wanted
    assert ("think_end" in options.model_dump()) == (given is not None), "cells keep their names"


def test_scores_and_later_turns_see_the_answer_alone():
    """Two turns through the runner's own loop, with an engine that says what it is told to."""
    model, reasoning = MODELS["gpt-oss"]
    said = model.tokenizer.encode(reasoning + FINAL, add_special_tokens=False)
    asked: list[list[int]] = []

    def decode(requests: Sequence[Request], limits: Limits) -> list[Generation]:
        asked.extend(request.input_ids for request in requests)
        return [Generation(output_ids=list(said)) for _ in requests]

    cell = SimpleNamespace(
        task=SimpleNamespace(options=TaskOptions(max_new_tokens=8)), max_new_tokens=8
    )
    limits = limits_of(cell, model, SimpleNamespace(stop=()))
    method = SimpleNamespace(target=model, check_fit=lambda length, limits: None)
    prompt = Prompt("a", turns=("first?", "second?"))
    turns = answer(method, [prompt], limits, lambda prompt, turn: "key", decode=decode)["a"]
    assert [turn.text for turn in turns] == [FINAL, FINAL]
    assert turns[0].output_ids == said, "the tokens of the reasoning are kept and counted"
    second = f"user: first?\nassistant: {FINAL}\nuser: second?\n"
    assert model.decode(asked[1], opens=True) == second
