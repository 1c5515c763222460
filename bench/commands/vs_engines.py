"""`python -m bench.vs_transformers pair=NAME [KEY=VALUE …]` (`make engine-speed`): a real model beside other engines.

The overrides are those of `python -m bench`, task=gsm8k_mars where none is given. Everything is greedy, in one
interleaved run with the same threads, and every rate includes the prompt:
  forward         of the target over 1, 2, 4 … tokens: milliseconds, and what share of the machine's copy bandwidth and
                  of its largest matrix product that is
  autoregressive  tokens/s over those of `transformers.generate`
  SpS             over transformers' assisted generation with the same draft model and length
  EAGLE-3         chains of three and the pair's tree, over autoregressive decoding
  llama.cpp       on the same GGUF file, with its own 4-bit arithmetic, where the package xllamacpp is installed
With --out FOLDER the comparison and its environment are also written to README.md and environment.json there."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Table

from bench.commands.arms import Arm, assisted, ours, print_rates, print_ratios, stock_generate, take_turns, write
from bench.commands.command import Options, run_command
from bench.commands.open_cell import OpenCell
from bench.microbench import synthetic
from methods.engine import gguf
from methods.engine.roofline import measured_bandwidth, measured_flops, step_bytes
from methods.engine.source import Source
from results.store.files import check_writable
from results.store.reasons import Arguments

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

DEFAULTS = {"task": "gsm8k_mars", "drafter": "none"}
TOKENS = (1, 2, 4, 8, 9, 16, 32)
CONTEXT = 128
"""Tokens before a timed forward."""
PLAIN, SPS = "autoregressive", "SpS, K = 3"
METHODS = {PLAIN: ("drafter=none",), SPS: ("drafter=model", "draft.length=3"),
           "EAGLE-3, chain of 3": ("drafter=eagle3", "drafter.tree=chain", "draft.length=3"),
           "EAGLE-3, tree": ("drafter=eagle3", "drafter.depth=3")}


class VsEngines(Options):
    """The command's own options.

    n        prompts.
    new      new tokens at most.
    repeats  rounds of forwards.
    out      folder of the written comparison; None: it is only printed.
    """

    n: PositiveInt
    new: PositiveInt
    repeats: PositiveInt
    out: Path | None


@torch.inference_mode()
def forward_seconds(target: LanguageModel, repeats: int) -> dict[int, float]:
    """Tokens -> median seconds of one forward of a chain of so many after a context; the numbers take turns."""
    ids = synthetic(target, CONTEXT)
    cache = target.new_cache(1, CONTEXT + max(TOKENS) + 1)
    target.prefill([ids], cache)
    inputs = {count: torch.tensor([synthetic(target, count)], device=target.device) for count in TOKENS}
    seconds: dict[int, list[float]] = {count: [] for count in TOKENS}
    for turn in range(repeats + 1):  # the first warms up
        for count, tokens in inputs.items():
            began = time.perf_counter()
            target.forward(tokens, cache)
            if turn:
                seconds[count].append(time.perf_counter() - began)
    return {count: median(values) for count, values in seconds.items()}


def print_forwards(console: Console, target: LanguageModel, repeats: int) -> None:
    """The table of forwards."""
    seconds, dtype = forward_seconds(target, repeats), target.model.dtype
    weights, entry = step_bytes(target)
    copied, product = measured_bandwidth(target.device), measured_flops(target.device, dtype)
    table = Table(title=f"one forward of the target after {CONTEXT} tokens; copies {copied / 1e9:.1f} GB/s, products "
                        f"{product / 1e9:.0f} GFLOP/s")
    for column in ("tokens", "ms", "÷ one token", "of the bandwidth", "of the products"):
        table.add_column(column, justify="right")
    for count, spent in seconds.items():
        table.add_row(str(count), f"{1e3 * spent:.1f}", f"{spent / seconds[1]:.2f}",
                      f"{(weights + entry * CONTEXT) / spent / copied:.0%}",
                      f"{2 * weights / dtype.itemsize * count / spent / product:.0%}")
    console.print(table)


def stock(model: LanguageModel) -> Any:
    """A copy of the model as users of `transformers` run it: every weight in its own order."""
    found = copy.deepcopy(model.model)
    for parameter in found.parameters():
        parameter.data = parameter.data.contiguous()
    return found.eval()


def llama_cpp(source: Source, revision: str | None, new: int, threads: int, context: int) -> Arm:
    """Greedy answers of llama.cpp to token ids, from the GGUF file as it is."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf.file_of(source.text, revision))
    params.n_ctx, params.n_parallel, params.verbosity = context, 1, -1
    for processor in (params.cpuparams, params.cpuparams_batch):
        processor.n_threads, processor.poll = threads, 0  # no thread waits busily in the turns of others
    server = xllamacpp.Server(params)
    options = {"n_predict": new, "temperature": 0.0, "cache_prompt": False}

    def run(ids: list[int]) -> tuple[int, float]:
        began = time.perf_counter()
        answer = server.handle_completions({**options, "prompt": ids})
        return answer["usage"]["completion_tokens"], time.perf_counter() - began
    return run


def methods_of(opened: OpenCell, overrides: Sequence[str]) -> dict[str, Method]:
    """The methods that the pair can run; they share its models. Raises ConfigError, ModelError."""
    own = [line for line in overrides if not line.startswith("drafter")]
    base = [f"{key}={value}" for key, value in DEFAULTS.items()] + own + ["decoding.temperature=0", "rule=lossless"]
    return {name: opened.composed([*base, *given]) for name, given in METHODS.items()}


def run(options: VsEngines, overrides: Sequence[str]) -> None:
    """Measure and print. Raises ValueError, ModelError, StoreError."""
    if options.out is not None:
        check_writable(options.out, "--out")
    opened = OpenCell.compose(overrides, DEFAULTS)
    methods = methods_of(opened, overrides)
    target, draft = methods[PLAIN].target, cast("LanguageModel", methods[SPS].model)
    prompts = [opened.context(prompt) for prompt in opened.task.prompts(options.n, opened.cell.seed)]
    eos, threads = sorted(target.eos_ids), torch.get_num_threads()
    arms: dict[str, Arm] = {name: ours(method, options.new) for name, method in methods.items()}
    arms |= {"transformers.generate": stock_generate(stock(target), eos, options.new),
             "transformers, assisted": assisted(stock(target), stock(draft), eos, options.new, 3)}
    source = Source.of(opened.cell.pair.target.source)
    if source.is_gguf and find_spec("xllamacpp") is not None:
        longest = max(map(len, prompts)) + options.new + 8
        arms["llama.cpp"] = llama_cpp(source, opened.cell.pair.target.revision, options.new, threads, longest)
    console = Console(record=True, width=100)
    print_forwards(console, target, options.repeats)
    runs = take_turns(arms, prompts)
    print_rates(console, runs, f"{opened.cell.pair.name}, {opened.cell.task.name}, {options.n} prompts, at most "
                               f"{options.new} tokens, T = 0, {opened.cell.engine.dtype}, {threads} threads")
    ratio = partial("{} ÷ {}".format)
    print_ratios(console, runs, [(ratio(own, other), own, other) for own, other in (
        (PLAIN, "transformers.generate"), (SPS, "transformers, assisted"),
        *((name, PLAIN) for name in METHODS if name != PLAIN), ("llama.cpp", PLAIN)) if own in runs])
    if options.out is not None:
        write(options.out, console.export_text(), "bench.vs_transformers", target.device.type,
              {"target": target.fingerprint, "draft": draft.fingerprint})


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.vs_transformers", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--n", default=40, help="prompts")
    parser.add_argument("--new", default=64, help="new tokens at most")
    parser.add_argument("--repeats", default=20, help="rounds of forwards")
    parser.add_argument("--out", metavar="FOLDER", help="where the comparison is written too")
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    return run_command(lambda: run(VsEngines.from_args(given), overrides))
