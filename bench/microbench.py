"""`python -m bench.microbench [KEY=VALUE …]`: measure the cost of a draft-verify cycle on this machine.

The overrides are those of `python -m bench`; the default is pair=synthetic_8b method=eagle3. Measured are
  bandwidth   of a plain copy in the device's memory, bytes read and written
  baseline    autoregressive decoding: the bytes a token must read (weights without the input embedding, keys and values
              of the context) over its time, also as a share of the bandwidth
  verify      one target forward of 1, 8, 32, 60 nodes after the context, relative to one node
  cycle       of the method: drafting, verifying, and the rest (decision, walk, bookkeeping)
  serving     time to the first token, p50 and p95 of the time between cycles, the peak memory
  batch       tokens/s of both on the task's prompts, 1, 2, 4 … --batch rows, and the first batch without a gain
The table, its environment and the roofline of the target (tokens/s against tokens of one forward, beside what copies
and matrix products allow) are written to results/measured/engine_<pair>. With to=cost/NAME.yaml a cost profile of the
pair is measured instead and written there, in conf (docs/cost.md; --prompts, --batches and --check are its options)."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt

from bench.commands.command import Options, run_command
from bench.commands.open_cell import OpenCell
from bench.run.timed_pass.profiling import Bursts, Phases
from methods.decode import Limits, Request, generate
from methods.engine.clock import now
from methods.engine.roofline import measured_bandwidth, measured_flops, step_bytes
from methods.trees.draft import Draft
from results.store.files import check_writable
from results.store.reasons import Arguments

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method

NODES = {1: "1 node", 8: "8 nodes", 32: "32 nodes", 60: "60 nodes"}
DEFAULTS = {"pair": "synthetic_8b", "method": "eagle3"}


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
    """One measured quantity: its name, its value in `unit`, and the value relative to another, in words."""

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


def synthetic(target: LanguageModel, context: int) -> list[int]:
    """A prompt of `context` tokens without meaning."""
    return [1 + i % (target.vocab_size - 1) for i in range(context)]


def measure(method: Method, baseline: Method, context: int, new: int, repeats: int) -> list[Line]:
    """All lines of the table, for a prompt of `context` tokens and `new` new tokens."""
    target, device = method.target, method.target.device
    ids = synthetic(target, context)
    limits = Limits(new, frozenset())
    copy = measured_bandwidth(device)
    weights, entry = step_bytes(target)
    lines = [Line("copy bandwidth", copy / 1e9, "GB/s")]
    for arm in (baseline, method):  # warm up
        generate(arm, [Request(ids, "engine")], limits)
    step = generate(baseline, [Request(ids, "engine")], limits)[0]
    token = step.decode_s / sum(step.committed)
    rate = (weights + entry * (context + new // 2)) / token
    lines += [Line("autoregressive token", token * 1e3, "ms", f"{1 / token:.1f} tokens/s"),
              Line("autoregressive reads", rate / 1e9, "GB/s", f"{rate / copy:.0%} of the copy bandwidth")]
    verify = verify_seconds(target, ids, repeats)
    lines += [Line(f"verify {NODES[nodes]}", seconds * 1e3, "ms", f"{seconds / verify[1]:.2f} of one node")
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


def serving(arms: Mapping[str, Method], ids: list[int], limits: Limits) -> list[Line]:
    """What a user of one stream sees of each arm, and the peak memory of all."""
    lines = []
    for name, arm in arms.items():
        bursts = Bursts(arm.target.device)
        [answer] = generate(arm, [Request(ids, "engine")], limits, bursts)
        gaps = [1e3 * (late - early) for early, late in pairwise(bursts.times)]
        lines += [Line(f"first token, {name}", answer.prefill_s * 1e3, "ms",
                       f"prefill of {len(ids) / answer.prefill_s:,.0f} tokens/s"),
                  Line(f"between cycles, {name}", float(np.median(gaps)), "ms",
                       f"median; p95 {np.quantile(gaps, 0.95):.3g} ms")]
    if arm.target.device.type == "cuda":
        used, whose = torch.cuda.max_memory_allocated(arm.target.device), "allocated on the device"
    else:
        used, whose = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "of the process"
    return [*lines, Line("peak memory", used / 1e9, "GB", whose)]


def rows_of(opened: OpenCell, rows: int) -> list[Request]:
    """The first prompts of the cell's task, again from the first where it has fewer. Raises ModelError, TaskError."""
    requests = [opened.request(prompt) for prompt in opened.task.prompts(rows, opened.cell.seed)]
    return [replace(requests[row % len(requests)], key=f"engine/{row}") for row in range(rows)]


def batch_rates(arms: Mapping[str, Method], requests: Sequence[Request], limits: Limits,
                rounds: int = 3) -> dict[int, tuple[float, ...]]:
    """Rows of a batch -> tokens/s of each arm on the first of the requests. The arms take turns, `rounds` times."""
    rates = {}
    for rows in (1 << power for power in range(len(requests).bit_length())):
        runs = [[generate(arm, requests[:rows], limits) for arm in arms.values()] for _ in range(rounds)]
        rates[rows] = tuple(sum(sum(answer.committed) for answers in each for answer in answers) /
                            sum(answer.decode_s for answers in each for answer in answers)
                            for each in zip(*runs, strict=True))
    return rates


def batch_lines(rates: Mapping[int, tuple[float, ...]]) -> list[Line]:
    """Tokens/s of the second arm at each batch; the first batch at which it is no faster than the first arm."""
    lines = [Line(f"batch {rows}", own, "tokens/s", f"{own / base:.2f} of {base:.4g} autoregressive")
             for rows, (base, own) in rates.items()]
    gone = next((rows for rows, (base, own) in rates.items() if own <= base), None)
    return lines if gone is None else [*lines, Line("no speedup from batch size", gone, "rows")]


def write_roofline(target: LanguageModel, lines: Sequence[Line], rates: Mapping[int, tuple[float, ...]],
                   contexts: tuple[int, int], folder: Path) -> None:
    """Draw roofline.png, .pdf and .svg into `folder`. `contexts`: tokens in the cache of a tree, of a batch's row."""
    from plots.render import save  # matplotlib, which a refused command should not cost
    from plots.roofline import draw
    from plots.style import style
    from results.metrics.roofline import Limits as Allowed

    values = {line.what: line.value for line in lines}
    weights, entry = step_bytes(target)
    dtype, bandwidth = target.model.dtype, 1e9 * values["copy bandwidth"]
    flops = measured_flops(target.device, dtype)
    allowed = [Allowed(bandwidth, flops * dtype.itemsize / (2 * weights), weights, entry * each) for each in contexts]
    points = {"nodes of a tree": {nodes: 1e3 * nodes / values[f"verify {name}"] for nodes, name in NODES.items()},
              "rows of a batch": {rows: base for rows, (base, _) in rates.items()}}
    caption = (f"{contexts[0]} tokens before a tree, {contexts[1]} in a row of a batch; measured: copy "
               f"{bandwidth / 1e9:.3g} GB/s, matrix product {flops / 1e12:.3g} TFLOP/s; points above their limit read "
               "from the processor's caches")
    with style(salt="roofline"):
        save(draw(points, dict(zip(points, allowed, strict=True)), caption), folder / "roofline")


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
        "![roofline](roofline.png)\n\nThe parts of a cycle are timed in a pass of their own, synchronising with the "
        "device after every phase. Rows above *batch 1* use a synthetic prompt, so their acceptance is not "
        f"representative of a task. A batch has the first prompts of {cell.task.name} at temperature "
        f"{cell.decoding.temperature:g}, {options.new} new tokens each. {opened.method.target.kernels}\n",
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
    given = DEFAULTS | dict(line.split("=", 1) for line in overrides if "=" in line)
    arms = {"autoregressive": baseline, given.get("drafter", given["method"]): method}
    requests = rows_of(opened, options.batch)
    rates = batch_rates(arms, requests, limits)
    row = sum(len(request.input_ids) for request in requests) // len(requests) + options.new // 2
    lines += [*serving(arms, ids, limits), *batch_lines(rates)]
    write(opened, lines, options, overrides, folder)
    write_roofline(method.target, lines, rates, (options.context, row), folder)
    print(table(lines))
    print(method.target.kernels)
    print(f"written: {folder}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 the command is wrong."""
    if any(line.startswith("to=") for line in (sys.argv[1:] if argv is None else argv)):
        from bench.cost import measure_profile

        return measure_profile(argv)
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
