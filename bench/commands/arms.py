"""Arms of a comparison of engines, which take turns over prompts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from methods.decode import Limits, Request, generate
from methods.engine.device import now

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

Arm = Callable[[list[int]], tuple[int, float]]
"""Prompt ids -> (new tokens, seconds)."""


def stock(model: LanguageModel) -> Any:
    """A copy of the model as users of `transformers` run it: its own attention, every weight in its own order."""
    found = copy.deepcopy(model.model)
    found.set_attn_implementation("sdpa")
    for parameter in found.parameters():
        parameter.data = parameter.data.contiguous()
    return found.eval()


def stock_generate(model: Any, eos: list[int], new: int, **extra: Any) -> Arm:
    """Greedy `model.generate` of at most `new` tokens."""
    def run(ids: list[int]) -> tuple[int, float]:
        tokens = torch.tensor([ids], device=model.device)
        began = now(model.device)
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False,
                             eos_token_id=eos, pad_token_id=0, **extra)
        return out.shape[1] - len(ids), now(model.device) - began
    return run


def assisted(target: Any, draft: Any, eos: list[int], new: int, length: int) -> Arm:
    """Assisted generation at a fixed draft length: constant schedule, no confidence threshold."""
    draft.generation_config.update(num_assistant_tokens=length, num_assistant_tokens_schedule="constant",
                                   assistant_confidence_threshold=0.0)
    return stock_generate(target, eos, new, assistant_model=draft)


def ours(method: Method, new: int) -> Arm:
    """This engine's decoding, prefill included as in `transformers.generate`."""
    limits = Limits(new, method.target.eos_ids)

    def run(ids: list[int]) -> tuple[int, float]:
        g = generate(method, [Request(ids, "speed")], limits)[0]
        return len(g.output_ids), g.prefill_s + g.decode_s
    return run


def take_turns(arms: Mapping[str, Arm], prompts: Sequence[list[int]]) -> dict[str, list[tuple[int, float]]]:
    """New tokens and seconds of every arm on each prompt: prompt by prompt, in an order that rotates."""
    runs: dict[str, list[tuple[int, float]]] = {name: [] for name in arms}
    for index, ids in enumerate([prompts[0], *prompts]):  # the first round warms up
        order = list(arms)[index % len(arms):] + list(arms)[:index % len(arms)]
        for name in order:
            result = arms[name](ids)
            if index:
                runs[name].append(result)
    return runs
