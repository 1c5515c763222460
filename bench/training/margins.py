"""The page of margins of any pair's target (conf/margins.yaml): how sure it is, and what its runner-up does.

Does a target have low-margin positions where the runner-up is harmless, and high-margin ones where it is fatal? Relaxed
verification relies on this difference (MARS, sections 1 and 3). It is measured on the target's own greedy answers: the
margin at every generated position, and the score when the runner-up replaces the top token at one position and greedy
decoding continues from there."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field, PositiveInt

from bench.run.answer import context
from bench.training import self_distillation
from bench.training.cards import TEMPLATES, render
from bench.training.options import PairOptions
from methods.decode import Limits, Request, generate, text_of
from methods.method import autoregressive
from results.metrics.intervals import proportion_interval, ratio_interval
from results.reports.spec import OWN_MODELS
from results.store.files import check_writable_file
from results.store.sample import FailedSample

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method
    from tasks.base import Prompt, Task

BATCH = 16
THRESHOLDS = (0.8, 0.84, 0.88, 0.9, 0.92, 0.96)
"""On margins: those of MARS, Figure 4, and a looser one."""
NUMBERS = {"model", "task", "certainty", "thresholds", "substitution"}
"""Keys of the numbers beside a page, which a later page needs."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answered prompt: the text of each turn, and context and tokens of the last one."""

    prompt: Prompt
    texts: list[str]
    context: list[int]
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Margins:
    """Answers to prompts of a task and their positions: a row each with `answer`, its number; `index`, the place in the
    last turn's tokens; `runner_up`, the second most likely token; z1, z2, the top two logits; p1, p2, their
    probabilities; `mean` and `std` of all logits; `entropy` in nats; `ratio`, z2/z1, MARS' margin, where 1 is a tie;
    and `centred_ratio`, the same of logits less their mean, which a constant added to all logits does not change."""

    task: Task
    replies: list[Reply]
    positions: pd.DataFrame


def margins(method: Method, task: Task, prompts: Sequence[Prompt], limits: Limits) -> Margins:
    """Greedy answers, decoded in batches, and one forward over each. Raises ValueError for a prompt that cannot be
    answered, and where none has an answer."""
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
    if not any(reply.ids for reply in replies):
        raise ValueError(f"task={task.name}: no prompt has an answer; give prompts that fit the model")
    parts = [_positions(method, reply).assign(answer=number) for number, reply in enumerate(replies)]
    return Margins(task, replies, pd.concat(parts, ignore_index=True))


@torch.inference_mode()
def _positions(method: Method, reply: Reply) -> pd.DataFrame:
    target, ids = method.target, reply.context + reply.ids
    keep = torch.arange(len(reply.context) - 1, len(ids) - 1, device=target.device)
    logits = target.forward(torch.tensor([ids], device=target.device), target.new_cache(1, len(ids)),
                            keep=keep).logits[0].float()
    (z1, z2), (_, second) = (top.unbind(-1) for top in logits.topk(2, -1))
    p, mean = logits.softmax(-1), logits.mean(-1)
    top = p.topk(2, -1).values.unbind(-1)
    columns = {"runner_up": second, "z1": z1, "z2": z2, "p1": top[0], "p2": top[1], "mean": mean, "std": logits.std(-1),
               "entropy": torch.special.entr(p).sum(-1)}
    frame = pd.DataFrame({name: column.cpu().numpy() for name, column in columns.items()})
    floats = frame.drop(columns="runner_up").astype(float)
    return floats.assign(index=range(len(frame)), runner_up=frame.runner_up, ratio=floats.z2 / floats.z1,
                         centred_ratio=(floats.z2 - floats["mean"]) / (floats.z1 - floats["mean"]))


def certainty(positions: pd.DataFrame, theta: float) -> dict[str, float]:
    """Means over positions (z1, std of the logits, p1, entropy in nats) and shares of those with a low margin.

    low, low_centred: z2/z1 above theta, as it is and of centred logits; low_probability: p2/p1 above a half;
    negative: z1 <= 0."""
    shares = {"low": positions.ratio > theta, "low_centred": positions.centred_ratio > theta,
              "low_probability": positions.p2 > 0.5 * positions.p1, "negative": positions.z1 <= 0}
    means = {name: positions[name] for name in ("z1", "std", "p1", "entropy")} | shares
    return {"positions": len(positions), **{name: float(column.mean()) for name, column in means.items()}}


def thresholds(positions: pd.DataFrame) -> list[dict[str, Any]]:
    """For each threshold θ the share of positions whose margin exceeds it, of logits as they are (`raw`) and less their
    mean (`centred`), {"share", "ci95"}: 95% intervals by resampling answers. `prob_ratio`: what θ means, p2/p1 where
    the margin is θ and z1 (less the mean) its median: ln(p2/p1) = z2 − z1 = −(1 − θ) z1."""
    sizes, table = positions.groupby("answer").size(), []
    for theta in THRESHOLDS:
        row: dict[str, Any] = {"theta": theta}
        for kind, margin, scale in (("raw", positions.ratio, positions.z1),
                                    ("centred", positions.centred_ratio, positions.z1 - positions["mean"])):
            above = (margin > theta).groupby(positions.answer).sum()
            row[kind] = {"share": float((margin > theta).mean()), "ci95": ratio_interval(above, sizes),
                         "prob_ratio": float(np.exp(-(1 - theta) * scale.median()))}
        table.append(row)
    return table


def substitution_table(method: Method, measured: Sequence[Margins], theta: float, limits: Limits,
                       count: int) -> dict[str, Any]:
    """How often an answer stays right when the runner-up replaces one top token, at low and at high margin.

    Only right answers of tasks with right-or-wrong scores are tried, `count` positions of each kind. low: z2/z1 >
    theta; high: the others."""
    pools: dict[str, list[tuple[Task, Reply, int, int]]] = {"low": [], "high": []}
    for one in (one for one in measured if one.task.proportion):
        right = [one.task.score(reply.prompt, reply.texts).value == 1.0 for reply in one.replies]
        for row in one.positions[["answer", "index", "runner_up", "ratio"]].itertuples(index=False, name=None):
            answer, index, runner_up, ratio = row
            if right[answer]:
                pools["low" if ratio > theta else "high"].append((one.task, one.replies[answer], index, runner_up))
    table = {}
    for kind, pool in pools.items():
        chosen = random.Random(0).sample(pool, min(count, len(pool)))
        n, still = len(chosen), sum(_substituted(method, chosen[at:at + BATCH], limits)
                                    for at in range(0, len(chosen), BATCH))
        table[kind] = {"n": n, "right": still / n, "ci95": proportion_interval(still, n)} if n else {"n": 0}
    return table


def _substituted(method: Method, positions: Sequence[tuple[Task, Reply, int, int]], limits: Limits) -> int:
    """At how many positions the final answer is right where the runner-up replaces the top token."""
    starts = [[*reply.ids[:index], runner_up] for _, reply, index, runner_up in positions]
    requests = [Request(position[1].context + start, "margins")
                for position, start in zip(positions, starts, strict=True)]
    right = 0
    for (task, reply, _, runner_up), start, generation in zip(positions, starts, generate(method, requests, limits),
                                                              strict=True):
        generation.output_ids = start if runner_up in limits.eos_ids else start + generation.output_ids
        text = text_of(generation, limits.stop, method.target)
        right += task.score(reply.prompt, [*reply.texts[:-1], text]).value == 1.0
    return right


class MarginPage(PairOptions):
    """conf/margins.yaml, which explains every field."""

    prompts: PositiveInt
    max_new_tokens: PositiveInt
    theta: float = Field(gt=0, lt=1)
    substitutions: int = Field(ge=0)
    beside: tuple[Path, ...]

    def measure(self, target: LanguageModel) -> dict[str, Any]:
        """All numbers of the page, as plain data."""
        task, method = self.load_task(), autoregressive(target)
        limits = Limits(self.max_new_tokens, target.eos_ids, task.stop)
        found = margins(method, task, task.prompts(self.prompts), limits)
        replaced = task.proportion and self.substitutions > 0
        table = substitution_table(method, [found], self.theta, limits, self.substitutions) if replaced else {}
        model = self.provenance_name(target) if self.pair.name == OWN_MODELS else self.pair.name
        return {"model": model, "task": task.name, "prompts": self.prompts, "theta": self.theta,
                "new": self.max_new_tokens, "certainty": certainty(found.positions, self.theta),
                "thresholds": thresholds(found.positions), "substitution": table}


def read_numbers(file: Path) -> dict[str, Any]:
    """The numbers of a page measured before. Raises ValueError, one line."""
    try:
        numbers: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"beside={file}: cannot be read ({error}); give the .json beside a page of margins") from error
    if not isinstance(numbers, dict) or NUMBERS - numbers.keys():
        raise ValueError(f"beside={file}: no numbers of a page of margins; give the .json beside such a page")
    return numbers


def run(config: Mapping[str, Any]) -> None:
    """Measure, then write the page and its numbers. Raises ValueError, ModelError, TaskError."""
    page = MarginPage.from_config(config)
    beside = list(map(read_numbers, page.beside))
    check_writable_file(page.out, "out")
    numbers = page.measure(page.load_model("target"))
    page.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    page.out.write_text(render(TEMPLATES / "margins.md.j2", rows=[numbers, *beside]), encoding="utf-8")
    print(page.out)
