"""`python -m bench.speed [KEY=VALUE …]` (`make engine-speed`): this engine beside transformers, on a pair's prompts.

The overrides are those of `python -m bench`; pair=tiny where none is given, and task=mini_gsm (gsm8k_mars for another
pair). Everything is greedy, in one interleaved run with the same threads, so a slow or busy machine biases no ratio.
Every rate includes the prompt:
  autoregressive  tokens/s over those of `transformers.generate`
  SpS             over transformers' assisted generation with the same draft model and draft length
  EAGLE-3         the pair's tree, over autoregressive decoding
  llama.cpp       over autoregressive decoding, on the same GGUF file with its own 4-bit arithmetic, where the package
                  xllamacpp is installed
  before          with --before FOLDER, each method over the same in another checkout of this project
With --out FOLDER the comparison and its environment are also written to README.md and environment.json there."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import PositiveInt
from rich.console import Console
from rich.table import Table

from bench.commands.arms import Arm, assisted, ours, stock, stock_generate, take_turns
from bench.commands.command import Options, run_command
from bench.commands.open_cell import OpenCell
from bench.config.environment import environment
from methods.engine import gguf
from methods.engine.source import Source
from results.metrics.delta import clocked_interval
from results.store.errors import Arguments, redacted_word
from results.store.files import check_writable

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

PLAIN, SPS, EAGLE = "autoregressive", "SpS", "EAGLE-3"
METHODS = {PLAIN: ("none", None), SPS: ("model", "draft"), EAGLE: ("eagle3", "eagle3")}
"""Name -> drafter and the role of its model in the pair."""
STOCK, ASSISTED, LLAMA = "transformers.generate", "transformers, assisted", "llama.cpp"
WORKER = """
import json, sys
import torch
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.heads.head import load_eagle3
from methods.method import build_method
from methods.sampling import Sampling

o = json.loads(sys.argv[1])
torch.set_num_threads(o["threads"])
how = {"dtype": o["dtype"], "device": o["device"]}
target = load_model(*o["models"]["target"][:1], revision=o["models"]["target"][1], **how)
built = {}
for name, (drafter, role, options) in o["methods"].items():
    source, revision = o["models"].get(role) or (None, None)
    model = (None if role is None else load_eagle3(source, target, revision=revision, **how) if role == "eagle3"
             else load_model(source, revision=revision, **how))
    built[name] = build_method(target, model, registry.drafter(drafter)(**options), registry.rule("greedy")(),
                               Sampling(0.0), o["length"])
limits = Limits(o["new"], target.eos_ids)
for line in sys.stdin:
    name, ids = json.loads(line)
    g = generate(built[name], [Request(ids, "speed")], limits)[0]
    print(json.dumps([len(g.output_ids), g.prefill_s + g.decode_s]), flush=True)
"""
"""Runs on the code of the other checkout: it uses nothing but what has long been there."""


class Speed(Options):
    """The command's own options.

    n       prompts.
    length  draft length K of SpS and of assisted generation.
    new     new tokens at most.
    before  folder of another checkout to compare with.
    out     folder of the written comparison; None: it is only printed.
    """

    n: PositiveInt
    length: PositiveInt
    new: PositiveInt
    before: Path | None
    out: Path | None


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


@contextmanager
def before(folder: Path, settings: Mapping[str, Any]) -> Iterator[dict[str, Arm]]:
    """The methods of another checkout, decoding in a process of its own. Raises ValueError for another folder."""
    if not (folder / "methods" / "decode.py").is_file():
        raise ValueError(f"--before {folder}: no methods/decode.py; give the folder of a checkout, such as "
                         "`git worktree add FOLDER COMMIT` makes")
    with subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(settings)], cwd=folder, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, told = process.stdin, process.stdout

        def arm(name: str) -> Arm:
            def run(ids: list[int]) -> tuple[int, float]:
                print(json.dumps([name, ids]), file=asked, flush=True)
                if not (line := told.readline()):
                    raise ValueError(f"--before {folder}: its process exited; see its error output above")
                tokens, seconds = json.loads(line)
                return int(tokens), float(seconds)
            return run

        try:
            yield {name: arm(name) for name in settings["methods"]}
        finally:
            process.terminate()


def settings_of(opened: OpenCell, methods: Mapping[str, Method], options: Speed) -> dict[str, Any]:
    """What the other checkout is told: plain data."""
    pair, target = opened.cell.pair, methods[PLAIN].target
    models = {role: (checkpoint.source, checkpoint.revision) for role, checkpoint in pair.checkpoints.items()}
    drafters = {name: (*METHODS[name], method.drafter.model_dump(mode="json", exclude_defaults=True))
                for name, method in methods.items()}
    return {"models": {role: (str(Path(source).resolve()) if Path(source).exists() else source, revision)
                       for role, (source, revision) in models.items()},
            "methods": drafters, "dtype": opened.cell.engine.dtype, "device": str(target.device),
            "threads": torch.get_num_threads(), "length": options.length, "new": options.new}


def run(options: Speed, overrides: Sequence[str]) -> None:
    """Measure and print. Raises ValueError, ModelError, StoreError."""
    if options.out is not None:
        check_writable(options.out, "--out")
    opened, base = opened_for(overrides)
    pair, cell = opened.cell.pair, opened.cell
    methods = {name: opened.composed([*base, f"drafter={drafter}", f"draft.length={options.length}"])
               for name, (drafter, role) in METHODS.items() if role is None or role in pair.checkpoints}
    target = methods[PLAIN].target
    prompts = [opened.context(prompt) for prompt in opened.task.prompts(options.n, cell.seed)]
    eos, threads = sorted(target.eos_ids), torch.get_num_threads()
    arms: dict[str, Arm] = {name: ours(method, options.new) for name, method in methods.items()}
    arms[STOCK] = stock_generate(stock(target), eos, options.new)
    if SPS in methods:
        draft = cast("LanguageModel", methods[SPS].model)
        arms[ASSISTED] = assisted(stock(target), stock(draft), eos, options.new, options.length)
    source = Source.of(pair.target.source)
    if source.is_gguf and find_spec("xllamacpp") is not None:
        longest = max(map(len, prompts)) + options.new + 8
        arms[LLAMA] = llama_cpp(source, pair.target.revision, options.new, threads, longest)
    compared = [(PLAIN, STOCK), (SPS, ASSISTED), (SPS, PLAIN), (EAGLE, PLAIN), (LLAMA, PLAIN)]
    with ExitStack() as stack:
        if options.before is not None:
            others = stack.enter_context(before(options.before, settings_of(opened, methods, options)))
            arms |= {f"before, {name}": arm for name, arm in others.items()}
            compared += [(name, f"before, {name}") for name in others]
        runs = take_turns(arms, prompts)
    console = Console(record=True, width=100)
    show(console, runs, [each for each in compared if runs.keys() >= {*each}],
         f"{pair.name}, {cell.task.name}, {options.n} prompts, at most {options.new} tokens, K = {options.length}, "
         f"T = 0, {cell.engine.dtype}, {threads} threads, one interleaved run")
    if options.out is not None:
        write(options.out, console.export_text(), target)


def show(console: Console, runs: Mapping[str, Sequence[tuple[int, float]]], compared: Sequence[tuple[str, str]],
         title: str) -> None:
    """Print the arms' tokens/s, and the ratio of each pair of arms with its 95% interval."""
    table = Table(title=title)
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


def write(folder: Path, comparison: str, target: LanguageModel) -> None:
    """Write README.md with the comparison as it was printed, and environment.json."""
    models, spread = {"target": target.fingerprint}, {"mode": "none", "devices": 1}
    found = environment(sys.argv, target.device.type, spread, models, {})
    (folder / "environment.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    command = shlex.join(["python", "-m", "bench.speed", *map(redacted_word, sys.argv[1:])])
    (folder / "README.md").write_text(f"# This engine beside others\n\n`{command}`\n\n```\n{comparison}```\n",
                                      encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.speed", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--n", default=24, help="prompts")
    parser.add_argument("--length", default=5, help="draft length K")
    parser.add_argument("--new", default=96, help="new tokens at most")
    parser.add_argument("--before", metavar="FOLDER", help="another checkout, timed in the same rotation")
    parser.add_argument("--out", metavar="FOLDER", help="where the comparison is written too")
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    return run_command(lambda: run(Speed.from_args(given), overrides))


if __name__ == "__main__":
    sys.exit(main())
