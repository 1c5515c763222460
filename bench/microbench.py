"""`python -m bench.microbench [KEY=VALUE …]`: measure the cost of a draft-verify cycle on this machine.

The overrides are those of `python -m bench`; the default is pair=synthetic_8b method=eagle3. Measured are
  bandwidth   of a plain copy in the device's memory, bytes read and written
  baseline    autoregressive decoding: the bytes a token must read (weights without the input embedding, keys and values
              of the context) over its time, also as a share of the bandwidth
  verify      one target forward of 1, 8, 32, 60 nodes after the context, relative to one node
  cycle       of the method: drafting, verifying, and the rest (decision, walk, bookkeeping)
  serving     time to the first token, p50 and p95 of the time between bursts of tokens (one a cycle), the most memory
  batch       tokens/s of both at batch 1, 2, 4 … --batch, and the first batch at which the method is no faster
The table and its environment are written to results/measured/engine_<pair>."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt

from bench.config.command import Options, run_command
from bench.run.open_cell import OpenCell
from bench.run.profiling import Phases, now
from methods.decode import Limits, Request, generate
from methods.engine.random_weights import nbytes
from methods.trees.draft import Draft
from results.store.files import check_writable
from results.store.reasons import Arguments

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

NODES = (1, 8, 32, 60)
DEFAULTS = {"pair": "synthetic_8b", "method": "eagle3"}
COPY_BYTES = {"cuda": 4 << 30, "cpu": 256 << 20}


class Microbench(Options):
    """The command's own options.

    context  tokens of the prompt.
    new      new tokens of a timed run.
    repeats  runs behind each median.
    batch    the largest batch.
    out      folder of the table; None: results/measured/engine_<pair>.
    """

    context: PositiveInt
    new: PositiveInt
    repeats: PositiveInt
    batch: PositiveInt
    out: Path | None


@dataclass(frozen=True, slots=True)
class Line:
    """One measured quantity.

    what      its name.
    value     in `unit`.
    unit      of the value.
    relative  the value relative to another, in words.
    """

    what: str
    value: float
    unit: str
    relative: str = ""


def median_seconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of `repeats` runs after two warm-up runs."""
    times = []
    for _ in range(repeats + 2):
        began = now(device)
        work()
        times.append(now(device) - began)
    return statistics.median(times[2:])


def bandwidth(device: torch.device, repeats: int) -> float:
    """Bytes per second of a copy, read and written."""
    source = torch.zeros(COPY_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / median_seconds(lambda: target.copy_(source), device, repeats)


@torch.inference_mode()
def verify_seconds(target: LanguageModel, ids: list[int], repeats: int) -> dict[int, float]:
    """Number of nodes -> seconds of one forward of that many siblings after the context `ids`. Nothing is committed."""
    cache = target.new_cache(1, len(ids) + max(NODES) + 1)
    target.prefill([ids], cache)
    seconds = {}
    for nodes in NODES:
        tokens = torch.arange(nodes, device=target.device)[None] % target.vocab_size
        parents = torch.zeros_like(tokens)
        parents[0, 0] = -1
        shape = Draft.of_parents(tokens, parents, max_depth=1)
        tree: dict[str, Any] = {} if nodes == 1 else {"ancestors": shape.ancestors, "depth": shape.depth}
        seconds[nodes] = median_seconds(partial(target.forward, tokens, cache, **tree), target.device, repeats)
    return seconds


def bytes_per_token(target: LanguageModel, context: int) -> int:
    """Bytes one autoregressive step must read: the weights, without an untied input embedding, and the cache."""
    model: Any = target.model
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    unread = 0 if embedding is head else int(embedding.nbytes)
    cache = target.new_cache(1, context)
    return nbytes(target.model) - unread + cache.keys.nbytes + cache.values.nbytes


def synthetic(target: LanguageModel, context: int) -> list[int]:
    """A prompt of `context` tokens without meaning."""
    return [1 + i % (target.vocab_size - 1) for i in range(context)]


def measure(method: Method, baseline: Method, context: int, new: int, repeats: int) -> list[Line]:
    """All lines of the table, for a prompt of `context` tokens and `new` new tokens."""
    target, device = method.target, method.target.device
    ids = synthetic(target, context)
    limits = Limits(new, frozenset())
    copy = bandwidth(device, repeats)
    lines = [Line("copy bandwidth", copy / 1e9, "GB/s")]
    for arm in (baseline, method):  # warm up
        generate(arm, [Request(ids, "engine")], limits)
    step = generate(baseline, [Request(ids, "engine")], limits)[0]
    token = step.decode_s / sum(step.committed)
    rate = bytes_per_token(target, context + new // 2) / token
    lines += [Line("autoregressive token", token * 1e3, "ms", f"{1 / token:.1f} tokens/s"),
              Line("autoregressive reads", rate / 1e9, "GB/s", f"{rate / copy:.0%} of the copy bandwidth")]
    verify = verify_seconds(target, ids, repeats)
    lines += [Line(f"verify {nodes} nodes", seconds * 1e3, "ms", f"{seconds / verify[1]:.2f} of one node")
              for nodes, seconds in verify.items()]
    timed = generate(method, [Request(ids, "engine")], limits)[0]
    cycle = timed.decode_s / len(timed.committed)
    phases = Phases(device)
    generate(method, [Request(ids, "engine")], limits, phases)
    draft, checked, rest = (phases.per_cycle(*names) for names in (("draft",), ("verify",), ("accept", "commit")))
    share = rest / (draft + checked + rest)
    lines += [Line("cycle", cycle * 1e3, "ms", f"{cycle / token:.2f} of an autoregressive token"),
              Line("cycle: draft", draft * 1e3, "ms", f"{draft / verify[1]:.2f} of verifying one node"),
              Line("cycle: verify", checked * 1e3, "ms", f"{checked / verify[1]:.2f} of verifying one node"),
              Line("cycle: decide, walk, commit", rest * 1e3, "ms", f"{share:.1%} of the cycle")]
    return lines


class Bursts:
    """A probe that notes when the first cycle begins and when each has committed its tokens."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.times: list[float] = []

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        if not self.times:
            self.times.append(now(self.device))
        yield
        if phase == "commit":
            self.times.append(now(self.device))


def serving(arms: Mapping[str, Method], ids: list[int], limits: Limits) -> list[Line]:
    """What a user of one stream sees of each arm, and the most memory that any took."""
    lines = []
    for name, arm in arms.items():
        bursts = Bursts(arm.target.device)
        [answer] = generate(arm, [Request(ids, "engine")], limits, bursts)
        gaps = [1e3 * (late - early) for early, late in pairwise(bursts.times)]
        lines += [Line(f"first token, {name}", answer.prefill_s * 1e3, "ms",
                       f"prefill of {len(ids) / answer.prefill_s:,.0f} tokens/s"),
                  Line(f"between bursts, {name}", float(np.median(gaps)), "ms",
                       f"median; p95 {np.quantile(gaps, 0.95):.3g} ms")]
    if arm.target.device.type == "cuda":
        used, whose = torch.cuda.max_memory_allocated(arm.target.device), "allocated on the device"
    else:
        used, whose = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "of the process"
    return [*lines, Line("most memory", used / 1e9, "GB", whose)]


def batches(arms: Mapping[str, Method], ids: list[int], limits: Limits, largest: int) -> list[Line]:
    """Tokens/s of both arms at each batch, the prompts alike; the first batch at which the second is no faster."""
    lines, gone = [], None
    for rows in (1 << power for power in range(largest.bit_length())):
        rates = []
        for arm in arms.values():
            answers = generate(arm, [Request(ids, str(row)) for row in range(rows)], limits)
            rates.append(sum(sum(one.committed) for one in answers) / sum(one.decode_s for one in answers))
        if gone is None and rates[1] <= rates[0]:
            gone = rows
        lines.append(Line(f"batch {rows}", rates[1], "tokens/s",
                          f"{rates[1] / rates[0]:.2f} of {rates[0]:.4g} autoregressive"))
    return lines if gone is None else [*lines, Line("speedup is gone", gone, "rows")]


def table(lines: Sequence[Line]) -> str:
    """The lines as a Markdown table."""
    rows = [(line.what, f"{line.value:.3g} {line.unit}", line.relative) for line in lines]
    return pd.DataFrame(rows, columns=["", "measured", "relative"]).to_markdown(
        index=False, colalign=["left", "right", "left"], disable_numparse=True)


def composed(overrides: Sequence[str]) -> OpenCell:
    """The cell of the overrides over this command's defaults. Raises ValueError."""
    opened = OpenCell.compose(overrides, DEFAULTS)
    if opened.cell.is_autoregressive:
        raise ValueError("drafter=none has no cycle to compare with the baseline: take method=eagle3 or another")
    return opened


def write(opened: OpenCell, lines: Sequence[Line], options: Microbench, overrides: Sequence[str],
          folder: Path) -> None:
    """Write README.md with the table and environment.json into `folder`."""
    cell = opened.cell
    found = cell.environment(sys.argv)
    machine = (found["accelerator"] or {}).get("name") or f"{found['cpu']['model']}, {found['cpu']['threads']} threads"
    drafter = ", ".join(f"{key} {value}" for key, value in cell.drafter.options.model_dump().items())
    (folder / "environment.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(
        f"# What a cycle costs: {cell.pair.name}\n\n{machine}, {cell.engine.dtype}; a context of {options.context} "
        f"tokens, {options.new} new tokens, batch 1 where none is named; {cell.drafter.name} ({drafter}), rule "
        f"{cell.rule.name}.\n`python -m bench.microbench {' '.join(overrides)}`\n\n{table(lines)}\n\n"
        "The parts of a cycle are timed in a separate pass that synchronises with the device at every phase. All rows "
        "of a batch have the same synthetic prompt: what a cycle accepts, and so the speedup, is that of no task.\n",
        encoding="utf-8")


def run(options: Microbench, overrides: Sequence[str]) -> None:
    """Measure, write and print the table. Raises ValueError, ModelError."""
    opened = composed(overrides)
    folder = options.out or Path("results", "measured", f"engine_{opened.cell.pair.name}")
    check_writable(folder, "--out")
    method, baseline = opened.method, opened.method_of(opened.cell.baseline())
    baseline = replace(baseline, target=method.target)
    lines = measure(method, baseline, options.context, options.new, options.repeats)
    ids, limits = synthetic(method.target, options.context), Limits(options.new, frozenset())
    arms = {"autoregressive": baseline, opened.cell.drafter.name: method}
    lines += [*serving(arms, ids, limits), *batches(arms, ids, limits, options.batch)]
    write(opened, lines, options, overrides, folder)
    print(table(lines))
    print(f"written: {folder}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    parser = Arguments(prog="python -m bench.microbench", description=__doc__,
                       formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--context", default=512, help="tokens of the prompt")
    parser.add_argument("--new", default=64, help="new tokens of a timed run")
    parser.add_argument("--repeats", default=20, help="runs behind each median")
    parser.add_argument("--batch", default=128, help="the largest batch")
    parser.add_argument("--out", help="folder of the table (results/measured/engine_<pair>)")
    given = vars(parser.parse_intermixed_args(argv))
    overrides = given.pop("overrides")
    return run_command(lambda: run(Microbench.from_args(given), overrides))


if __name__ == "__main__":
    sys.exit(main())
