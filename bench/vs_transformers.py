"""`python -m bench.vs_transformers` (`make engine-speed`): this engine beside `transformers`, in one interleaved run.

Four numbers, each a ratio or a share, so that a slow or busy machine does not change what they say:
  autoregressive  this engine's tokens/s over `transformers.generate`'s
  speculative     SpS tokens/s over `transformers` assisted generation at the same fixed draft length
  overhead        share of the wall time spent outside the models' own forwards, for SpS and for EAGLE-3 with a tree of
                  60 nodes; the pair's own head, or one of its shape with random weights where it has none"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

from methods import registry
from methods.decode import Limits, Request, generate
from methods.engine.language_model import LanguageModel
from methods.engine.loading import load_model
from methods.heads.eagle3 import Eagle3Head
from methods.heads.head import Head, load_eagle3
from methods.heads.layer import KNOWN, head_config
from methods.method import Method, build_method
from methods.sampling import Sampling
from results.metrics import intervals
from tasks.mini import MiniTask


class ForwardClock:
    """Adds up the wall time inside the forwards of some modules, none of which is called inside another."""

    def __init__(self, *modules: nn.Module):
        self.seconds = 0.0
        self.hooks = [hook for module in modules for hook in (module.register_forward_pre_hook(self._enter),
                                                              module.register_forward_hook(self._leave))]

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()

    def _enter(self, *_) -> None:
        self.began = time.perf_counter()

    def _leave(self, *_) -> None:
        self.seconds += time.perf_counter() - self.began


def of_transformers(folder: str, dtype: str, device: str):
    """The stock model, as `transformers` users run it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()


def stock_generate(model, eos: list[int], new: int, **extra) -> Callable[[list[int]], tuple[int, float]]:
    def run(ids: list[int]) -> tuple[int, float]:
        tokens = torch.tensor([ids], device=model.device)
        began = time.perf_counter()
        out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False,
                             eos_token_id=eos, pad_token_id=0, **extra)
        return out.shape[1] - len(ids), time.perf_counter() - began
    return run


def assisted(target, draft, eos: list[int], new: int, length: int) -> Callable[[list[int]], tuple[int, float]]:
    """Assisted generation at a fixed draft length: constant schedule, no confidence threshold."""
    draft.generation_config.update(num_assistant_tokens=length, num_assistant_tokens_schedule="constant",
                                   assistant_confidence_threshold=0.0)
    return stock_generate(target, eos, new, assistant_model=draft)


def ours(method: Method, new: int) -> Callable[[list[int]], tuple[int, float]]:
    """Prefill included, as in `transformers.generate`."""
    limits = Limits(new, method.target.eos_ids)

    def run(ids: list[int]) -> tuple[int, float]:
        g = generate(method, [Request(ids, "speed")], limits)[0]
        return len(g.output_ids), g.prefill_s + g.decode_s
    return run


@contextmanager
def _threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    yield
    torch.set_num_threads(before)


def measure(args: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    target, draft = (load_model(f, dtype=args.dtype, device=device) for f in (args.target, args.draft))
    greedy = Sampling(0.0)
    rule, none, model = registry.rule("greedy")(), registry.drafter("none")(), registry.drafter("model")()
    sps = build_method(target, draft, model, rule, greedy, args.length)
    eos, new = sorted(target.eos_ids), args.new
    arms = {
        "transformers.generate": stock_generate(of_transformers(args.target, args.dtype, device), eos, new),
        "this engine, autoregressive": ours(build_method(target, None, none, rule, greedy, args.length), new),
        "transformers, assisted": assisted(of_transformers(args.target, args.dtype, device),
                                           of_transformers(args.draft, args.dtype, device), eos, new, args.length),
        "this engine, SpS": ours(sps, new),
    }
    asked = [prompt.turns[0] for prompt in MiniTask("mini_gsm").prompts(args.n, 0)]
    prompts = [target.encode([{"role": "user", "content": text}]) for text in asked]
    runs: dict[str, list[tuple[int, float]]] = {name: [] for name in arms}
    with _threads(args.threads):
        for index, ids in enumerate([prompts[0], *prompts]):  # the first round warms up
            order = list(arms)[index % len(arms):] + list(arms)[:index % len(arms)]
            for name in order:
                result = arms[name](ids)
                if index:
                    runs[name].append(result)
        share = overhead(sps, prompts[:max(8, args.n // 4)], new, [draft.model])
        head = eagle3_head(args, target)
        eagle3 = build_method(target, head, registry.drafter("eagle3")(), rule, greedy, args.length)
        inner = head.model, head.model.fc, head.model.lm_head
        share_eagle3 = overhead(eagle3, prompts[:max(4, args.n // 6)], new, inner)
    report(runs, share, share_eagle3, args)


def eagle3_head(args: argparse.Namespace, target: LanguageModel) -> Head:
    """The head beside the target; without one, a head of the target's own shape with random weights: a cycle costs the
    same whatever is accepted."""
    folder = Path(args.eagle3)
    if folder.is_dir():
        return load_eagle3(str(folder), target, dtype=args.dtype, device=str(target.device))
    config = target.model.config.get_text_config(decoder=True).to_dict()
    with TemporaryDirectory() as made:
        Path(made, "config.json").write_text(json.dumps({key: config.get(key) for key in KNOWN}))
        save_file(Eagle3Head(head_config({key: config.get(key) for key in KNOWN})).state_dict(),
                  Path(made, "model.safetensors"))
        return load_eagle3(made, target, dtype=args.dtype, device=str(target.device))


def overhead(method: Method, prompts: list[list[int]], new: int, drafting: Sequence[nn.Module]) -> float:
    """Share of the wall time outside the forwards of the target and the `drafting` modules (a pass of its own)."""
    limits, decode = Limits(new, method.target.eos_ids), 0.0
    generate(method, [Request(prompts[0], "speed")], limits)  # warms up
    clock = ForwardClock(method.target.model, *drafting)
    for ids in prompts:
        g = generate(method, [Request(ids, "speed")], limits)[0]
        decode += g.prefill_s + g.decode_s
    clock.remove()
    return 1.0 - clock.seconds / decode


def report(runs: dict[str, list[tuple[int, float]]], share: float, share_eagle3: float,
           args: argparse.Namespace) -> None:
    console = Console()
    table = Table(title=f"{args.target}, {args.n} prompts, K = {args.length}, T = 0, {args.dtype}, one interleaved run")
    for column in ("arm", "tokens/s", "tokens"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, pairs in runs.items():
        tokens, seconds = map(sum, zip(*pairs, strict=True))
        table.add_row(name, f"{tokens / seconds:.1f}", str(tokens))
    console.print(table)
    names = list(runs)
    for title, mine, theirs in (("autoregressive ÷ transformers.generate", names[1], names[0]),
                                ("SpS ÷ transformers assisted", names[3], names[2]),
                                ("SpS ÷ autoregressive (both this engine)", names[3], names[1])):
        (mt, ms), (tt, ts) = (list(zip(*runs[name], strict=True)) for name in (mine, theirs))
        low, high = intervals.speedup_interval(mt, ms, tt, ts)
        console.print(f"{title}: {sum(mt) / sum(ms) / (sum(tt) / sum(ts)):.2f}  [{low:.2f}, {high:.2f}]")
    console.print(f"outside model forwards: {100 * share:.1f}% of the SpS wall time, {100 * share_eagle3:.1f}% with "
                  "EAGLE-3 trees of 60 nodes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.vs_transformers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="models/tiny/target")
    parser.add_argument("--draft", default="models/tiny/draft")
    parser.add_argument("--eagle3", default="models/tiny/eagle3", help="an EAGLE-3 head of the target, if there is one")
    parser.add_argument("--n", type=int, default=24, help="prompts of mini_gsm")
    parser.add_argument("--length", type=int, default=5, help="draft length K")
    parser.add_argument("--new", type=int, default=96, help="new tokens at most")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 = all cores")
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
