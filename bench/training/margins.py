"""Does a target have low-margin positions where the runner-up is harmless, and certain ones where it is fatal?

Relaxed verification lives on that difference (MARS, sections 1 and 3). Measured on the target's own greedy answers:
the margins of every generated position, and what becomes of the final answer when the runner-up takes the place of
the top token at one position and greedy decoding goes on from there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bench.run.conversation import Answer, answer, context
from methods.decode import Limits, Request, generate, text_of
from methods.method import Method
from tasks.base import Prompt, Task

BATCH = 16


@dataclass(frozen=True, slots=True)
class Position:
    """One generated position: its place in the last turn's answer, the top two logits and probabilities."""

    answer: Answer
    index: int
    runner_up: int
    z1: float
    z2: float
    p1: float
    p2: float

    @property
    def ratio(self) -> float:
        """z2/z1, MARS' margin; 1 is a tie."""
        return self.z2 / self.z1


def key(prompt: Prompt, turn: int) -> str:
    return f"physics/{prompt.id}/{turn}"


def answers(method: Method, task: Task, prompts: Sequence[Prompt], limits: Limits) -> list[Answer]:
    """Greedy answers, in batches."""
    found = []
    for at in range(0, len(prompts), BATCH):
        found += answer(method, prompts[at:at + BATCH], limits, key)
    return found


@torch.inference_mode()
def margins(method: Method, found: Answer) -> list[Position]:
    """Every position of the answer's last turn, by one forward over context and answer."""
    target = method.target
    before = context(target, found.prompt, found.texts[:-1])
    ids = found.output_ids[-found.turn_tokens[-1]:]
    cache = target.new_cache(1, len(before) + len(ids))
    keep = torch.arange(len(before) - 1, len(before) + len(ids) - 1, device=target.device)
    logits = target.forward(torch.tensor([before + ids], device=target.device), cache, keep=keep).logits[0]
    z, tokens = logits.topk(2, -1)
    p = logits.softmax(-1).gather(-1, tokens)
    rows = zip(tokens.tolist(), z.tolist(), p.tolist(), strict=True)
    return [Position(found, i, t[1], *zs, *ps) for i, (t, zs, ps) in enumerate(rows)]


def substituted(method: Method, task: Task, positions: Sequence[Position], limits: Limits) -> list[bool]:
    """For each position: is the final answer still right after the runner-up took the top token's place there?"""
    target, right = method.target, []
    for at in range(0, len(positions), BATCH):
        batch = positions[at:at + BATCH]
        starts = [[*p.answer.output_ids[-p.answer.turn_tokens[-1]:][:p.index], p.runner_up] for p in batch]
        requests = [Request(context(target, p.answer.prompt, p.answer.texts[:-1]) + start, "physics")
                    for p, start in zip(batch, starts, strict=True)]
        for p, start, generation in zip(batch, starts, generate(method, requests, limits), strict=True):
            generation.output_ids = start if p.runner_up in limits.eos_ids else start + generation.output_ids
            text = text_of(generation, limits.stop, target)
            right.append(task.score(p.answer.prompt, [*p.answer.texts[:-1], text]).value == 1.0)
    return right


def sample(positions: Sequence[Position], count: int, seed: int) -> list[Position]:
    """`count` of the positions, or all, in an order fixed by the seed."""
    return random.Random(seed).sample(list(positions), min(count, len(positions)))
