"""Does a target have low-margin positions where the runner-up is harmless, and high-margin ones where it is fatal?

Relaxed verification relies on this difference (MARS, sections 1 and 3). It is measured on the target's own greedy
answers: the margin at every generated position, and the score when the runner-up replaces the top token at one position
and greedy decoding continues from there."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bench.run.answer import context
from bench.training import self_distillation
from methods.decode import Limits, Request, generate, text_of
from results.metrics.intervals import proportion_interval, ratio_interval
from results.store.sample import FailedSample
from tasks.base import Prompt, Task

if TYPE_CHECKING:
    from methods.method import Method

BATCH = 16
THRESHOLDS = (0.8, 0.84, 0.88, 0.9, 0.92, 0.96)
"""On margins: those of MARS, Figure 4, and a looser one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered prompt: the text of each turn, and context and tokens of the last one."""

    prompt: Prompt
    texts: list[str]
    context: list[int]
    ids: list[int]


@dataclass(frozen=True, slots=True)
class TokenMargin:
    """One generated position.

    answer     the answer it belongs to.
    index      its place in the last turn's tokens.
    runner_up  the second most likely token.
    z1, z2     the top two logits.
    p1, p2     their probabilities.
    mean, std  of all logits of the position.
    entropy    of the distribution, nats.
    """

    answer: Reply
    index: int
    runner_up: int
    z1: float
    z2: float
    p1: float
    p2: float
    mean: float
    std: float
    entropy: float

    @property
    def ratio(self) -> float:
        """z2/z1, MARS' margin; 1 is a tie."""
        return self.z2 / self.z1

    @property
    def centred_ratio(self) -> float:
        """The same of logits less their mean: a constant added to all logits does not change it."""
        return (self.z2 - self.mean) / (self.z1 - self.mean)


Margins = Mapping[str, tuple[Task, Sequence[TokenMargin]]]
"""Task name -> the task and its measured positions."""


def answers(method: Method, prompts: Sequence[Prompt], limits: Limits) -> list[Reply]:
    """Greedy answers, decoded in batches. Raises ValueError for a prompt that cannot be answered."""
    replies: list[Reply] = []
    for at in range(0, len(prompts), BATCH):
        batch = prompts[at:at + BATCH]
        found = self_distillation.answers(method, batch, limits, lambda prompt, turn: f"margins/{prompt.id}/{turn}")
        for prompt in batch:
            turns = found[prompt.id]
            if isinstance(turns, FailedSample):
                raise ValueError(f"prompt {prompt.id}: {turns.error}")
            texts = [turn.text for turn in turns]
            replies.append(Reply(prompt, texts, context(method.target, prompt, texts[:-1]), turns[-1].output_ids))
    return replies


@torch.inference_mode()
def margins(method: Method, answered: Reply) -> list[TokenMargin]:
    """Every position of the answer's last turn, by one forward over context and answer."""
    target = method.target
    before, ids = answered.context, answered.ids
    cache = target.new_cache(1, len(before) + len(ids))
    keep = torch.arange(len(before) - 1, len(before) + len(ids) - 1, device=target.device)
    logits = target.forward(torch.tensor([before + ids], device=target.device), cache, keep=keep).logits[0]
    z, tokens = logits.topk(2, -1)
    p = logits.float().softmax(-1)
    whole = torch.stack([logits.float().mean(-1), logits.float().std(-1), torch.special.entr(p).sum(-1)], -1)
    rows = zip(tokens.tolist(), z.tolist(), p.gather(-1, tokens).tolist(), whole.tolist(), strict=True)
    return [TokenMargin(answered, i, t[1], *zs, *ps, *ws) for i, (t, zs, ps, ws) in enumerate(rows)]


def substituted(method: Method, task: Task, positions: Sequence[TokenMargin], limits: Limits) -> list[bool]:
    """For each position: is the final answer right when the runner-up replaces the top token there?"""
    target, right = method.target, []
    for at in range(0, len(positions), BATCH):
        batch = positions[at:at + BATCH]
        starts = [[*p.answer.ids[:p.index], p.runner_up] for p in batch]
        requests = [Request(p.answer.context + start, "margins") for p, start in zip(batch, starts, strict=True)]
        for p, start, generation in zip(batch, starts, generate(method, requests, limits), strict=True):
            generation.output_ids = start if p.runner_up in limits.eos_ids else start + generation.output_ids
            text = text_of(generation, limits.stop, target)
            right.append(task.score(p.answer.prompt, [*p.answer.texts[:-1], text]).value == 1.0)
    return right


def certainty(positions: Sequence[TokenMargin], theta: float) -> dict[str, float]:
    """Means over positions (z1, std of the logits, p1, entropy in nats) and shares of those with a low margin.

    low, low_centred: z2/z1 above theta, as it is and of centred logits; low_probability: p2/p1 above a half;
    negative: z1 <= 0."""
    n = len(positions)
    means = {name: sum(getattr(p, name) for p in positions) / n for name in ("z1", "std", "p1", "entropy")}
    return {"positions": n, **means, "low": sum(p.ratio > theta for p in positions) / n,
            "low_centred": sum(p.centred_ratio > theta for p in positions) / n,
            "low_probability": sum(p.p2 > 0.5 * p.p1 for p in positions) / n,
            "negative": sum(p.z1 <= 0 for p in positions) / n}


def thresholds(positions: Sequence[TokenMargin]) -> list[dict[str, Any]]:
    """For each threshold θ the share of positions whose margin exceeds it, of logits as they are (`raw`) and less their
    mean (`centred`), {"share", "ci95"}: 95% intervals by resampling answers. `prob_ratio`: what θ means, p2/p1 where
    the margin is θ and z1 (less the mean) its median: ln(p2/p1) = z2 − z1 = −(1 − θ) z1."""
    by_answer: dict[int, list[TokenMargin]] = {}
    for position in positions:
        by_answer.setdefault(id(position.answer), []).append(position)
    sizes = [len(group) for group in by_answer.values()]
    table = []
    for theta in THRESHOLDS:
        row: dict[str, Any] = {"theta": theta}
        for kind, margin, scale in (("raw", "ratio", [p.z1 for p in positions]),
                                    ("centred", "centred_ratio", [p.z1 - p.mean for p in positions])):
            above = [sum(getattr(p, margin) > theta for p in group) for group in by_answer.values()]
            row[kind] = {"share": sum(above) / len(positions), "ci95": ratio_interval(above, sizes),
                         "prob_ratio": math.exp(-(1 - theta) * statistics.median(scale))}
        table.append(row)
    return table


def substitution_table(method: Method, measured: Margins, theta: float, limits: Limits, count: int) -> dict[str, Any]:
    """How often an answer stays right when the runner-up replaces one top token, at low and at high margin.

    Only right answers of tasks with right-or-wrong scores are tried, `count` positions of each kind. low: z2/z1 >
    theta; high: the others."""
    pools: dict[str, list[tuple[Task, TokenMargin]]] = {"low": [], "high": []}
    for task, positions in measured.values():
        if not task.proportion:
            continue
        by_id = {id(p.answer): p.answer for p in positions}
        right = {key: task.score(a.prompt, a.texts).value == 1.0 for key, a in by_id.items()}
        for position in positions:
            if right[id(position.answer)]:
                pools["low" if position.ratio > theta else "high"].append((task, position))
    table = {}
    for kind, pool in pools.items():
        chosen = random.Random(0).sample(pool, min(count, len(pool)))
        still = 0
        for task in {id(t): t for t, _ in chosen}.values():
            still += sum(substituted(method, task, [p for t, p in chosen if t is task], limits))
        n = len(chosen)
        table[kind] = {"n": n, "right": still / n, "ci95": proportion_interval(still, n)} if n else {"n": 0}
    return table
