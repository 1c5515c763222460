"""Arms of a comparison of engines, which take turns over prompts, and how it is printed and written."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from bench.config.environment import environment
from methods.decode import Limits, Request, generate
from results.metrics.delta import clocked_interval
from results.store.redaction import redacted_word

if TYPE_CHECKING:
    from rich.console import Console

    from methods.method import Method

Arm = Callable[[list[int]], tuple[int, float]]
"""Prompt ids -> (new tokens, seconds)."""


def stock_generate(model: Any, eos: list[int], new: int, **extra: Any) -> Arm:
    """Greedy `model.generate` of at most `new` tokens."""
    def run(ids: list[int]) -> tuple[int, float]:
        tokens = torch.tensor([ids], device=model.device)
        began = time.perf_counter()
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False,
                             eos_token_id=eos, pad_token_id=0, **extra)
        return out.shape[1] - len(ids), time.perf_counter() - began
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


def print_rates(console: Console, runs: Mapping[str, Sequence[tuple[int, float]]], title: str) -> None:
    """A table of the arms' tokens/s."""
    table = Table(title=title)
    for column in ("arm", "tokens/s", "tokens"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, pairs in runs.items():
        tokens, seconds = map(sum, zip(*pairs, strict=True))
        table.add_row(name, f"{tokens / seconds:.1f}", str(tokens))
    console.print(table)


def print_ratios(console: Console, runs: Mapping[str, Sequence[tuple[int, float]]],
                 compared: Sequence[tuple[str, str, str]]) -> None:
    """A line for each (title, arm, other arm): the ratio of their tokens/s and its 95% interval."""
    for title, mine, theirs in compared:
        (mt, ms), (tt, ts) = (list(zip(*runs[name], strict=True)) for name in (mine, theirs))
        interval = clocked_interval(mt, ms, tt, ts)
        shown = "" if interval is None else "  [{:.2f}, {:.2f}]".format(*interval)
        console.print(f"{title}: {sum(mt) / sum(ms) / (sum(tt) / sum(ts)):.2f}{shown}")


def write(folder: Path, comparison: str, module: str, device: str, models: Mapping[str, str]) -> None:
    """Write README.md with the comparison as it was printed, and environment.json. `models`: role -> fingerprint."""
    found = environment(sys.argv, device, {"mode": "none", "devices": 1}, models, {})
    (folder / "environment.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    command = shlex.join(["python", "-m", module, *map(redacted_word, sys.argv[1:])])
    (folder / "README.md").write_text(f"# This engine beside others\n\n`{command}`\n\n```\n{comparison}```\n",
                                      encoding="utf-8")
