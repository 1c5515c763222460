"""Greedy answers are those of transformers' `generate`, token by token, on every device; they depend
neither on their batch nor on recorded graphs. `make test-gpu` runs the cases of a GPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.config.paths import TINY
from bench.run.answer import context
from bench.run.one_cell import open_cell
from methods.decode import Limits, Request, generate
from methods.engine import probe
from methods.engine.margin import next_logits, top2_margin
from methods.method import Method
from tests.helpers.architectures import config_of, random_model
from tests.helpers.decoding import generated, method_on
from tests.helpers.devices import DEVICES, graphs_on
from tests.helpers.tiny_heads import random_head, small

PROMPTS, NEW = {"cpu": 2, "cuda": 6}, {"cpu": 12, "cuda": 32}
BATCHES = {"cpu": (4, 3), "cuda": (64, 9)}
"""Rows that decode together: all, and a number that leaves a smaller last batch."""
PAIR = {
    "plain": "drafter=none",
    "chain": "drafter=model draft.length=5",
    "lookup": "drafter=prompt_lookup draft.length=5",
    "tree": "drafter=eagle3 drafter.total=16 drafter.depth=6 drafter.top_k=3",
    "medusa": "drafter=medusa",
}
"""How the embedded pair drafts."""
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "gemma3_text": {"sliding_window": 16, "query_pre_attn_scalar": 32},
    "gpt_oss": {"sliding_window": 16},
}
"""Architectures with random weights; their windows are shorter than the prompts."""
HEAD_DIM = 32
Ids = list[int]


def stock_answers(stock: Any, prompts: Sequence[Ids], new: int) -> list[Ids]:
    """What transformers' own copy of a model answers."""
    exactly = {"min_new_tokens": new, "eos_token_id": None, "pad_token_id": 0}
    return whole((generated(stock, ids, new, **exactly) for ids in prompts), new)


def answers(method: Method, prompts: Sequence[Ids], new: int, rows: int = 1) -> list[Ids]:
    """Greedy answers, `rows` of them decoded together."""
    requests = [Request(ids, str(number)) for number, ids in enumerate(prompts)]
    return whole(
        (
            answer.output_ids
            for first in range(0, len(requests), rows)
            for answer in generate(method, requests[first : first + rows], Limits(new, frozenset()))
        ),
        new,
    )


def whole(found: Iterable[Ids], new: int) -> list[Ids]:
    """Answers, none of which is shorter: nothing is equal to nothing."""
    listed = list(found)
    assert {len(ids) for ids in listed} == {new}
    return listed


def embedded(arm: str, device: str, dtype: str, count: int) -> tuple[Method, list[Ids]]:
    """The embedded pair with a drafter, greedy, and the first prompts of a task."""
    words = (
        "pair=tiny task=mini_chat rule=lossless decoding.temperature=0 "
        f"engine.device={device} engine.dtype={dtype} {PAIR[arm]}"
    )
    cell, method = open_cell(words.split())
    prompts = cell.load_task().prompts(count, cell.seed)
    return method, [context(method.target, prompt, []) for prompt in prompts]


def stock_pair(device: str, dtype: str) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(TINY / "target", dtype=getattr(torch, dtype))
    return model.to(device).eval()


@pytest.fixture(scope="module", params=DEVICES)
def device(request) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", SHAPES)
def test_random_models_answer_as_generate_does(kind, device):
    """Plain, by prompt lookup, and with a head's tree."""
    target = random_model(config_of(kind, hidden_size=128, head_dim=HEAD_DIM, **SHAPES[kind]))
    target.model.to(device)
    probe.check(target)
    stock = copy.deepcopy(target.model)
    stock.set_attn_implementation("eager")
    draw = torch.Generator().manual_seed(0)
    prompts = []
    for size in torch.linspace(5, 30, PROMPTS[device]).long().tolist():
        half = torch.randint(3, target.vocab_size, (size,), generator=draw).tolist()
        prompts.append(half * 2)  # prompt lookup finds the first half in the second
    want = stock_answers(stock, prompts, NEW[device])
    for name in ("none", "prompt_lookup", "eagle3"):
        head = random_head(name, target, head_dim=HEAD_DIM) if name == "eagle3" else None
        method = method_on(target, head, small(name))
        assert answers(method, prompts, NEW[device]) == want, name


@pytest.mark.parametrize("arm", ["plain", "chain", "tree"])
def test_in_bfloat16_answers_part_at_near_ties_alone(arm, device):
    """Two correct programs round differently. The two largest logits are then at most one spacing of
    bfloat16 apart, or twice as far as rounding moves the logits of that text."""
    method, prompts = embedded(arm, device, "bfloat16", PROMPTS[device])
    stock = stock_pair(device, "bfloat16")
    got, exact = answers(method, prompts, NEW[device]), copy.deepcopy(stock).float()
    for ids, own, other in zip(
        prompts, got, stock_answers(stock, prompts, NEW[device]), strict=True
    ):
        if own == other:
            continue
        at = next(at for at, pair in enumerate(zip(own, other, strict=True)) if len({*pair}) > 1)
        read = [*ids, *own[:at]]
        logits, tokens = next_logits(method.target, read), torch.tensor([read], device=device)
        spacing = torch.finfo(torch.bfloat16).eps * 2.0 ** math.floor(
            math.log2(float(logits.abs().max()))
        )
        with torch.inference_mode():
            rounding = (stock(tokens).logits.float() - exact(tokens).logits).abs().max()
        assert top2_margin(logits) <= max(spacing, 2 * float(rounding)), at


@pytest.mark.parametrize("arm", PAIR)
def test_the_pair_answers_as_generate_does(arm, device):
    """Alone, in batches of many and of few, and with recorded graphs."""
    many, few = BATCHES[device]
    method, prompts = embedded(arm, device, "float32", many)
    models = [method.target] if method.model is None else [method.target, method.model]
    want = stock_answers(stock_pair(device, "float32"), prompts, NEW[device])
    assert answers(method, prompts, NEW[device]) == want
    for rows in (many, few):
        for model in models:
            model.graphs = None
        assert answers(method, prompts, NEW[device], rows) == want, f"batches of {rows}"
        graphs = graphs_on(device)
        for model in models:
            model.graphs = graphs
        assert answers(method, prompts, NEW[device], rows) == want, f"batches of {rows}, graphs"
        assert graphs.replays > len(graphs.recordings) > 0
