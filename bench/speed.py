"""`python -m bench.speed [KEY=VALUE …]` (`make engine-speed`): this engine beside transformers, on a pair's prompts.

The overrides are those of `python -m bench`; pair=tiny where none is given, and task=mini_gsm (gsm8k_mars for another
pair). Everything is greedy, in one interleaved run with the same threads, so a slow or busy machine biases no ratio.
Every rate includes the prompt:
  autoregressive  tokens/s over those of `transformers.generate`
  SpS             over transformers' assisted generation with the same draft model and draft length
  EAGLE-3         the pair's tree, over autoregressive decoding
  llama.cpp       over autoregressive decoding, on the same GGUF file with its own 4-bit arithmetic, where the package
                  xllamacpp is installed
With --before FOLDER, another checkout of Leeway, each method over the same method there, in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Table

from bench.commands.arms import Arm, assisted, ours, stock, stock_generate, take_turns
from bench.commands.command import Options, run_command
from bench.commands.open_cell import OpenCell
from bench.config.paths import PROJECT
from methods.engine import gguf
from methods.engine.source import Source
from results.metrics.delta import clocked_interval
from results.store.errors import Arguments

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

PLAIN, SPS, EAGLE = "autoregressive", "SpS", "EAGLE-3"
METHODS = {PLAIN: ("none", None), SPS: ("model", "draft"), EAGLE: ("eagle3", "eagle3")}
"""Name -> drafter and the role of its model in the pair."""
STOCK, ASSISTED, LLAMA = "transformers.generate", "transformers, assisted", "llama.cpp"


class Speed(Options):
    """The command's own options.

    n       prompts.
    length  draft length K of SpS and of assisted generation.
    new     new tokens at most.
    before  another checkout.
    """

    n: PositiveInt
    length: PositiveInt
    new: PositiveInt
    before: Path | None


def opened_for(overrides: Sequence[str]) -> tuple[OpenCell, list[str]]:
    """The cell that decodes nothing but names models and prompts, and its overrides with the defaults. Raises
    ConfigError."""
    own = [line for line in overrides if not line.startswith(("drafter", "method"))]
    given = {line.partition("=")[0] for line in own}
    pair = [] if "pair" in given else ["pair=tiny"]
    task = [] if "task" in given else [f"task={'mini_gsm' if 'pair=tiny' in [*pair, *own] else 'gsm8k_mars'}"]
    base = [*pair, *task, *own, "decoding.temperature=0", "rule=lossless"]
    return OpenCell.compose([*base, "drafter=none"]), base


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


ELSEWHERE = """
import json, sys
from bench.commands.arms import ours
from bench.commands.open_cell import OpenCell
overrides, new = json.loads(sys.argv[1])
arm = ours(OpenCell.compose(overrides).method, new)
for line in sys.stdin:
    print(json.dumps(arm(json.loads(line))), flush=True)
"""


def elsewhere(folder: Path, overrides: Sequence[str], new: int, processes: ExitStack) -> Arm:
    """A method of another checkout, in a process that ends with `processes`. Raises ValueError where it does not
    run."""
    if not (folder / "bench" / "commands").is_dir():
        raise ValueError(f"--before {folder}: no checkout of Leeway; give the folder of one")
    process = processes.enter_context(subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE, json.dumps([overrides, new])], text=True, cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(folder.resolve())}))

    def run(ids: list[int]) -> tuple[int, float]:
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps(ids), file=process.stdin, flush=True)
        if not (line := process.stdout.readline()):
            raise ValueError(f"--before {folder}: this method does not run there (its message is above)")
        tokens, seconds = json.loads(line)
        return tokens, seconds
    return run


def run(options: Speed, overrides: Sequence[str]) -> None:
    """Measure and print. Raises ValueError, ModelError, StoreError."""
    opened, base = opened_for(overrides)
    pair, cell = opened.cell.pair, opened.cell
    methods = {name: opened.composed([*base, f"drafter={drafter}", f"draft.length={options.length}"])
               for name, (drafter, role) in METHODS.items() if role is None or role in pair.checkpoints}
    target = methods[PLAIN].target
    prompts = [opened.context(prompt) for prompt in opened.task.prompts(options.n, cell.seed)]
    eos, threads = sorted(target.eos_ids), torch.get_num_threads()
    arms: dict[str, Arm] = {name: ours(method, options.new) for name, method in methods.items()}
    title = (f"{pair.name}, {cell.task.name}, {options.n} prompts, at most {options.new} tokens, K = {options.length}, "
             f"T = 0, {cell.engine.dtype}, {threads} threads, one interleaved run")
    if options.before is not None:
        with ExitStack() as processes:  # both sides sleep while others run: a busy machine treats them alike
            for name in methods:
                own = [f"drafter={METHODS[name][0]}", f"draft.length={options.length}", f"engine.threads={threads}"]
                arms |= {called: elsewhere(folder, [*base, *own], options.new, processes)
                         for called, folder in ((name, PROJECT), (f"{name}, before", options.before))}
            runs = take_turns(arms, prompts)
        show(runs, [(name, f"{name}, before") for name in methods], title)
        return
    arms[STOCK] = stock_generate(stock(target), eos, options.new)
    if SPS in methods:
        draft = cast("LanguageModel", methods[SPS].model)
        arms[ASSISTED] = assisted(stock(target), stock(draft), eos, options.new, options.length)
    source = Source.of(pair.target.source)
    if source.is_gguf and find_spec("xllamacpp") is not None:
        longest = max(map(len, prompts)) + options.new + 8
        arms[LLAMA] = llama_cpp(source, pair.target.revision, options.new, threads, longest)
    compared = [(PLAIN, STOCK), (SPS, ASSISTED), (SPS, PLAIN), (EAGLE, PLAIN), (LLAMA, PLAIN)]
    runs = take_turns(arms, prompts)
    show(runs, [each for each in compared if runs.keys() >= {*each}], title)


def show(runs: Mapping[str, Sequence[tuple[int, float]]], compared: Sequence[tuple[str, str]],
         title: str) -> None:
    """Print the arms' tokens/s, and the ratio of each pair of arms with its 95% interval."""
    console, table = Console(width=100), Table(title=title)
    for column in ("arm", "tokens/s", "tokens"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, pairs in runs.items():
        tokens, seconds = map(sum, zip(*pairs, strict=True))
        table.add_row(name, f"{tokens / seconds:.1f}", str(tokens))
    console.print(table)
    for mine, theirs in compared:
        (mt, ms), (tt, ts) = (list(zip(*runs[name], strict=True)) for name in (mine, theirs))
        interval = clocked_interval(mt, ms, tt, ts)
        shown = "" if interval is None else "  [{:.2f}, {:.2f}]".format(*interval)
        console.print(f"{mine} ÷ {theirs}: {sum(mt) / sum(ms) / (sum(tt) / sum(ts)):.2f}{shown}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.speed", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--n", default=24, help="prompts")
    parser.add_argument("--length", default=5, help="draft length K")
    parser.add_argument("--new", default=96, help="new tokens at most")
    parser.add_argument("--before", metavar="FOLDER", help="another checkout, to compare each method with")
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    return run_command(lambda: run(Speed.from_args(given), overrides))


if __name__ == "__main__":
    sys.exit(main())
