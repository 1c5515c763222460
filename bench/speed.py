"""`python -m bench.speed [KEY=VALUE …]` (`make engine-speed`): this engine beside transformers, on
a pair's prompts.

The overrides are those of `python -m bench`; pair=tiny where none is given, and task=mini_gsm
(gsm8k_mars for another pair). Everything is greedy, in one interleaved run with the same threads,
so a slow or busy machine biases no ratio. Every rate includes the prompt:
  autoregressive  tokens/s over those of `transformers.generate`
  SpS             over transformers' assisted generation with the same draft model and draft length
  EAGLE-3         the pair's tree, over autoregressive decoding
  llama.cpp       over autoregressive decoding, on the same GGUF file with its own 4-bit arithmetic,
                  where the package xllamacpp is installed"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Column, Table

from bench.cli.command import Options, run_command
from bench.config.command import key_of
from bench.run.answer import context
from bench.run.models import ModelPool
from bench.run.one_cell import open_cell
from methods.decode import Limits, Request, generate
from methods.engine import gguf
from methods.engine.device import now
from methods.engine.source import ModelSource
from results.metrics.delta import clocked_interval
from results.store.errors import Arguments

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

PLAIN, SPS, EAGLE = "autoregressive", "SpS", "EAGLE-3"
DRAFTING = {SPS: ("model", "draft"), EAGLE: ("eagle3", "eagle3")}
"""Name -> drafter and the role of its model in the pair."""
STOCK, ASSISTED, LLAMA = "transformers.generate", "transformers, assisted", "llama.cpp"

Arm = Callable[[list[int]], tuple[int, float]]
"""Prompt ids -> (new tokens, seconds)."""


class Speed(Options):
    """The command's own options.

    n       prompts.
    length  draft length K of SpS and of assisted generation.
    new     new tokens at most.
    """

    n: PositiveInt
    length: PositiveInt
    new: PositiveInt


def with_defaults(overrides: Sequence[str]) -> list[str]:
    """The overrides of every arm but for its drafter."""
    lines = [line for line in overrides if not line.startswith(("drafter", "method"))]
    keys = set(map(key_of, lines))
    if "pair" not in keys:
        lines.append("pair=tiny")
    if "task" not in keys:
        lines.append("task=mini_gsm" if "pair=tiny" in lines else "task=gsm8k_mars")
    return [*lines, "decoding.temperature=0", "rule=lossless"]


def llama_cpp(
    source: ModelSource, revision: str | None, new: int, threads: int, context: int
) -> Arm:
    """Greedy answers of llama.cpp to token ids, from the GGUF file as it is."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf.file_of(source.text, revision))
    params.n_ctx, params.n_parallel, params.verbosity = context, 1, -1
    for processor in (params.cpuparams, params.cpuparams_batch):
        processor.n_threads = threads
        processor.poll = 0  # no thread waits busily in the turns of others
    server = xllamacpp.Server(params)
    options = {"n_predict": new, "temperature": 0.0, "cache_prompt": False}

    def run(ids: list[int]) -> tuple[int, float]:
        began = time.perf_counter()
        answer = server.handle_completions({**options, "prompt": ids})
        return answer["usage"]["completion_tokens"], time.perf_counter() - began

    return run


def stock(model: LanguageModel) -> Any:
    """A copy of the model as users of `transformers` run it: its own attention, every weight in its
    own order."""
    copied = copy.deepcopy(model.model)
    copied.set_attn_implementation("sdpa")
    for parameter in copied.parameters():
        parameter.data = parameter.data.contiguous()
    return copied.eval()


def stock_generate(model: Any, eos: list[int], new: int, **extra: Any) -> Arm:
    """Greedy `model.generate` of at most `new` tokens."""

    def run(ids: list[int]) -> tuple[int, float]:
        tokens = torch.tensor([ids], device=model.device)
        began = now(model.device)
        out = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=0,
            **extra,
        )
        return out.shape[1] - len(ids), now(model.device) - began

    return run


def assisted(target: Any, draft: Any, eos: list[int], new: int, length: int) -> Arm:
    """Assisted generation at a fixed draft length: constant schedule, no confidence threshold."""
    draft.generation_config.update(
        num_assistant_tokens=length,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    return stock_generate(target, eos, new, assistant_model=draft)


def ours(method: Method, new: int) -> Arm:
    """This engine's decoding, prefill included as in `transformers.generate`."""
    limits = Limits(new, method.target.eos_ids)

    def run(ids: list[int]) -> tuple[int, float]:
        [generation] = generate(method, [Request(ids, "speed")], limits)
        return len(generation.output_ids), generation.prefill_s + generation.decode_s

    return run


def take_turns(
    arms: Mapping[str, Arm], prompts: Sequence[list[int]]
) -> dict[str, list[tuple[int, float]]]:
    """New tokens and seconds of every arm on each prompt: prompt by prompt, in an order that
    rotates."""
    runs: dict[str, list[tuple[int, float]]] = {name: [] for name in arms}
    for index, ids in enumerate([prompts[0], *prompts]):  # the first round warms up
        first = index % len(arms)
        for name in [*arms][first:] + [*arms][:first]:
            result = arms[name](ids)
            if index:
                runs[name].append(result)
    return runs


def run(options: Speed, overrides: Sequence[str]) -> None:
    """Measure and print. Raises ValueError, ModelError, StoreError."""
    base = [*with_defaults(overrides), f"draft.length={options.length}"]
    pool = ModelPool()
    cell, plain = open_cell([*base, "drafter=none"], pool)
    pair, target = cell.pair, plain.target
    methods = {PLAIN: plain}
    for name, (drafter, role) in DRAFTING.items():
        if role in pair.checkpoints:
            methods[name] = open_cell([*base, f"drafter={drafter}"], pool)[1]
    prompts = [
        context(target, prompt, []) for prompt in cell.load_task().prompts(options.n, cell.seed)
    ]
    eos = sorted(target.eos_ids)
    threads = torch.get_num_threads()
    arms: dict[str, Arm] = {name: ours(method, options.new) for name, method in methods.items()}
    title = (
        f"{pair.name}, {cell.task.name}, {options.n} prompts, at most {options.new} tokens, K = "
        f"{options.length}, T = 0, {cell.engine.dtype}, {threads} threads, one interleaved run"
    )
    arms[STOCK] = stock_generate(stock(target), eos, options.new)
    if SPS in methods:
        draft = cast("LanguageModel", methods[SPS].model)
        arms[ASSISTED] = assisted(stock(target), stock(draft), eos, options.new, options.length)
    source = ModelSource.of(pair.target.source)
    if source.is_gguf and find_spec("xllamacpp") is not None:
        longest = max(map(len, prompts)) + options.new + 8
        arms[LLAMA] = llama_cpp(source, pair.target.revision, options.new, threads, longest)
    compared = [(PLAIN, STOCK), (SPS, ASSISTED), (SPS, PLAIN), (EAGLE, PLAIN), (LLAMA, PLAIN)]
    runs = take_turns(arms, prompts)
    show(runs, [each for each in compared if runs.keys() >= {*each}], title)


def show(
    runs: Mapping[str, Sequence[tuple[int, float]]], compared: Sequence[tuple[str, str]], title: str
) -> None:
    """Print the arms' tokens/s, and the ratio of each pair of arms with its 95% interval."""
    console = Console(width=100)
    numbers = (Column(name, justify="right") for name in ("tokens/s", "tokens"))
    table = Table("arm", *numbers, title=title)
    for name, pairs in runs.items():
        tokens, seconds = map(sum, zip(*pairs, strict=True))
        table.add_row(name, f"{tokens / seconds:.1f}", str(tokens))
    console.print(table)
    for mine, theirs in compared:
        columns = [column for name in (mine, theirs) for column in zip(*runs[name], strict=True)]
        tokens, seconds, their_tokens, their_seconds = map(sum, columns)
        ratio = tokens / seconds / (their_tokens / their_seconds)
        interval = clocked_interval(*columns)
        shown = "" if interval is None else "  [{:.2f}, {:.2f}]".format(*interval)
        console.print(f"{mine} ÷ {theirs}: {ratio:.2f}{shown}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(
        prog="python -m bench.speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--n", default=24, help="prompts")
    parser.add_argument("--length", default=5, help="draft length K")
    parser.add_argument("--new", default=96, help="new tokens at most")
    options = vars(parser.parse_intermixed_args(argv))
    overrides = options.pop("overrides")
    return run_command(lambda: run(Speed.from_args(options), overrides))


if __name__ == "__main__":
    sys.exit(main())
