"""`python -m bench.vs_transformers` (`make engine-speed`): compare this engine with `transformers`, interleaved.

Every number is a ratio or a share, so a slow or busy machine does not bias it:
  autoregressive  this engine's tokens/s over those of `transformers.generate`
  speculative     SpS tokens/s over those of `transformers` assisted generation at the same fixed draft length
  before          with --before FOLDER, another checkout of this project: this engine's tokens/s over its, for
                  autoregressive decoding, SpS and EAGLE-3 with trees of 24 nodes
  overhead        share of the wall time outside the models' forwards, for SpS and for EAGLE-3 with trees of 24 and of
                  60 nodes (the pair's own head, or one of its shape with random weights where it has none)
With --out FOLDER the comparison and its environment are also written to README.md and environment.json there. With
pair=NAME a real model is compared instead (bench/commands/vs_engines.py; its options by pair=NAME --help)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from pydantic import NonNegativeInt, PositiveInt
from rich.console import Console
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from bench.commands.arms import Arm, assisted, ours, print_rates, print_ratios, stock_generate, take_turns, write
from bench.commands.checkout import Checkout
from bench.commands.command import Options, run_command
from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.loading import load_model
from methods.engine.source import DType
from methods.heads.eagle3 import Eagle3Head
from methods.heads.eagle3_config import Form, fused_layers
from methods.heads.head import Head, load_eagle3
from methods.heads.layer import KNOWN, head_config
from methods.method import Method, build_method
from methods.sampling import Sampling
from results.store.files import check_writable
from results.store.reasons import Arguments
from tasks.mini import MiniTask

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel

SMALL_TREE = {"total": 24, "depth": 4, "top_k": 6}
"""The tree of EAGLE-3 that is compared: 24 nodes."""
BEFORE = {"autoregressive": "none", "SpS": "model", "EAGLE-3": "eagle3"}
"""What is compared with the other checkout: name -> drafter."""
RATIOS = (("autoregressive ÷ transformers.generate", "this engine, autoregressive", "transformers.generate"),
          ("SpS ÷ transformers assisted", "this engine, SpS", "transformers, assisted"),
          ("SpS ÷ autoregressive (both this engine)", "this engine, SpS", "this engine, autoregressive"))


class VsTransformers(Options):
    """The command's options.

    target, draft  the models.
    eagle3         an EAGLE-3 head of the target; any other path stands for a head with random weights.
    n              prompts of mini_gsm.
    length         draft length K.
    new            new tokens at most.
    dtype          numeric type of all models.
    threads        CPU threads; 0: PyTorch's choice.
    before         folder of another checkout to compare with.
    out            folder of the written comparison; None: it is only printed.
    """

    target: str
    draft: str
    eagle3: Path
    n: PositiveInt
    length: PositiveInt
    new: PositiveInt
    dtype: DType
    threads: NonNegativeInt
    before: Path | None
    out: Path | None


class ForwardClock:
    """Sums the wall time inside some callables of models, given as (model, name), none of which calls another."""

    def __init__(self, *forwards: tuple[Any, str]) -> None:
        self.seconds = 0.0
        self.originals = [(model, name, vars(model).get(name)) for model, name in forwards]
        for model, name in forwards:
            setattr(model, name, self._timed(getattr(model, name)))

    def remove(self) -> None:
        for model, name, original in self.originals:
            if original is None:
                delattr(model, name)
            else:
                setattr(model, name, original)

    def _timed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            out = forward(*args, **options)
            self.seconds += time.perf_counter() - began
            return out
        return run


def load_stock_model(folder: str, dtype: str, device: str) -> Any:
    """The model as users of `transformers` run it."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return model.to(device).eval()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    yield
    torch.set_num_threads(before)


def measure(options: VsTransformers) -> None:
    """Time all arms and print the comparison. Raises ModelError, StoreError."""
    if options.out is not None:
        check_writable(options.out, "--out")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    target, draft = (load_model(f, dtype=options.dtype, device=device) for f in (options.target, options.draft))
    greedy, rule = Sampling(0.0), registry.rule("greedy")()
    sps = build_method(target, draft, registry.drafter("model")(), rule, greedy, options.length)
    asked = [prompt.turns[0] for prompt in MiniTask("mini_gsm").prompts(options.n)]
    prompts = [target.encode([{"role": "user", "content": text}]) for text in asked]
    head = eagle3_head(options, target)
    small = build_method(target, head, registry.drafter("eagle3")(**SMALL_TREE), rule, greedy, options.length)
    arms = build_arms(options, target, sps, device) | {"this engine, EAGLE-3": ours(small, options.new)}
    with _threads(options.threads), ExitStack() as stack:
        if options.before is not None:
            before = stack.enter_context(Checkout(options.before, before_settings(options, device)))
            arms |= {f"before, {name}": before.arm(drafter) for name, drafter in BEFORE.items()
                     if drafter != "eagle3" or options.eagle3.is_dir()}
        runs = take_turns(arms, prompts)
        large = build_method(target, head, registry.drafter("eagle3")(), rule, greedy, options.length)
        drafting = (head, "step"), (head.model, "fuse"), (head, "logits")
        some, fewer = prompts[:max(8, options.n // 4)], prompts[:max(4, options.n // 6)]
        shares = {"SpS": overhead(sps, some, options.new, [forward_of(draft)]),
                  "EAGLE-3, 24 nodes": overhead(small, fewer, options.new, drafting),
                  "EAGLE-3, 60 nodes": overhead(large, fewer, options.new, drafting)}
    console = Console(record=True, width=100)
    report(console, runs, shares, options)
    if options.out is not None:
        write(options.out, console.export_text(), "bench.vs_transformers", device,
              {"target": target.fingerprint, "draft": draft.fingerprint})


def build_arms(options: VsTransformers, target: LanguageModel, sps: Method, device: str) -> dict[str, Arm]:
    """The four arms by name: `transformers` and this engine, each without and with a draft."""
    eos, new, rule = sorted(target.eos_ids), options.new, registry.rule("greedy")()
    plain = build_method(target, None, registry.drafter("none")(), rule, Sampling(0.0), options.length)
    stock = [load_stock_model(folder, options.dtype, device)
             for folder in (options.target, options.target, options.draft)]
    return {
        "transformers.generate": stock_generate(stock[0], eos, new),
        "this engine, autoregressive": ours(plain, new),
        "transformers, assisted": assisted(stock[1], stock[2], eos, new, options.length),
        "this engine, SpS": ours(sps, new),
    }


def before_settings(options: VsTransformers, device: str) -> dict[str, Any]:
    """What the other checkout is told."""
    eagle3 = str(options.eagle3) if options.eagle3.is_dir() else ""
    return {**options.model_dump(mode="json"), "device": device, "eagle3": eagle3, "options": {"eagle3": SMALL_TREE}}


def eagle3_head(options: VsTransformers, target: LanguageModel) -> Head:
    """The target's head, or one of the target's own shape with random weights: the cost of a cycle does not depend on
    what is accepted."""
    if options.eagle3.is_dir():
        return load_eagle3(str(options.eagle3), target, dtype=options.dtype, device=str(target.device))
    config = target.model.config.get_text_config(decoder=True).to_dict()
    with TemporaryDirectory() as made:
        Path(made, "config.json").write_text(json.dumps({key: config.get(key) for key in KNOWN}))
        form = Form(fused_layers(target.layers))
        save_file(Eagle3Head(head_config({key: config.get(key) for key in KNOWN}), form).state_dict(),
                  Path(made, "model.safetensors"))
        return load_eagle3(made, target, dtype=options.dtype, device=str(target.device))


def forward_of(model: LanguageModel) -> tuple[Any, str]:
    """What runs a model's layers: its lean decoder or transformers' modules."""
    return (model.model, "forward") if model.lean is None else (model, "lean")


def overhead(method: Method, prompts: list[list[int]], new: int, drafting: Sequence[tuple[Any, str]]) -> float:
    """Share of the wall time outside the forwards of the target and the `drafting` callables (a separate pass)."""
    limits, decode = Limits(new, method.target.eos_ids), 0.0
    generate(method, [Request(prompts[0], "speed")], limits)  # warms up
    clock = ForwardClock(forward_of(method.target), *drafting)
    for ids in prompts:
        g = generate(method, [Request(ids, "speed")], limits)[0]
        decode += g.prefill_s + g.decode_s
    clock.remove()
    return 1.0 - clock.seconds / decode


def report(console: Console, runs: Mapping[str, Sequence[tuple[int, float]]], shares: Mapping[str, float],
           options: VsTransformers) -> None:
    """Print tokens/s of each arm, the ratios with their 95% intervals, and the shares outside the forwards."""
    print_rates(console, runs, f"{options.target}, {options.n} prompts, K = {options.length}, T = 0, {options.dtype}, "
                               "one interleaved run")
    before = [(f"{name} ÷ before", f"this engine, {name}", f"before, {name}") for name in BEFORE]
    print_ratios(console, runs, [each for each in (*RATIOS, *before) if each[2] in runs])
    for name, share in shares.items():
        console.print(f"outside the models' forwards, {name}: {share:.1%} of the wall time")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    if any(line.startswith("pair=") for line in (sys.argv[1:] if argv is None else argv)):
        from bench.commands import vs_engines

        return vs_engines.main(argv)
    parser = Arguments(prog="python -m bench.vs_transformers", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="models/tiny/target")
    parser.add_argument("--draft", default="models/tiny/draft")
    parser.add_argument("--eagle3", default="models/tiny/eagle3", help="an EAGLE-3 head of the target, if there is one")
    parser.add_argument("--n", default=24, help="prompts of mini_gsm")
    parser.add_argument("--length", default=5, help="draft length K")
    parser.add_argument("--new", default=96, help="new tokens at most")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", default=0, help="CPU threads; 0 = all cores")
    parser.add_argument("--before", metavar="FOLDER", help="another checkout, timed in the same rotation")
    parser.add_argument("--out", metavar="FOLDER", help="where the comparison is written too")
    given = vars(parser.parse_args(argv))
    return run_command(lambda: measure(VsTransformers.from_args(given)))


if __name__ == "__main__":
    sys.exit(main())
