"""Measure what the parts of a cycle cost on this machine, as `results.metrics.cost.Profile` has them.

Methods of a pair take turns over a few prompts, with the clock of each phase (`bench.run.timed_pass.profiling`): each
part is timed inside the loop, with the caches as decoding leaves them. Seconds are medians over cycles of equal size;
what is linear is fitted by least squares of relative errors, no cost below 0."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import isotonic_regression, nnls

from bench.config.compose import composer
from bench.run.answer import context, limits_of, stream_name
from bench.run.models import ModelPool
from bench.run.threads import use_threads
from bench.run.timed_pass.profiling import Phases
from methods.decode import Limits, Request, generate
from results.metrics.cost import LOSSLESS, Costs, Drafting, Linear, Profile

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from methods.method import Method

CHAINS = ("draft.length=1", "draft.length=3", "draft.length=7")
TREES = tuple((f"drafter.total={total}", f"drafter.depth={depth}", f"drafter.top_k={width}")
              for total, depth, width in ((16, 3, 4), (32, 5, 8), (64, 6, 10)))
SHAPES: Mapping[str, Sequence[Sequence[str]]] = {
    **{name: [[length] for length in CHAINS] for name in ("model", "early_exit", "prompt_lookup", "suffix")},
    "medusa": [[]], "eagle": [[]], "lookahead": [[]],
    **{name: [*(["drafter.tree=chain", length] for length in CHAINS), *TREES] for name in ("eagle3", "eagle2", "hass")}}
"""Drafter -> overrides of the drafts whose cycles are timed."""
JUDGED = ("drafter=eagle3 drafter.tree=chain draft.length=3", f"drafter=eagle3 {' '.join(TREES[0])}",
          "drafter=eagle3 drafter.tree=chain draft.length=7", "drafter=model draft.length=3",
          "drafter=model draft.length=7", "drafter=early_exit draft.length=3", "drafter=early_exit draft.length=7")
"""Drafts on which rules are timed: the first two that a rule can judge. Their tree is small: for a cycle of 64 nodes a
real model on a CPU needs a quarter of a second."""
NEW_TOKENS, LARGEST = 24, 512
"""New tokens of an answer; tokens of the largest batch's forward: more take seconds on a CPU."""


@dataclass(frozen=True, slots=True)
class Size:
    """What the seconds of a cycle's phases depend on: the method, its nodes, the forwards of the drafter's model."""

    drafter: str
    rule: str
    nodes: int
    forwards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """What was timed at one temperature and batch, in seconds.

    cycles    size of a cycle -> median of each of its phases.
    prefills  drafter -> prompt tokens and median, of each prompt.
    """

    cycles: Mapping[Size, Mapping[str, float]]
    prefills: Mapping[str, Sequence[tuple[int, float]]]


def measure(overrides: Sequence[str], prompts: int, batches: Sequence[int],
            say: Callable[[str], None]) -> tuple[str, Profile]:
    """The name of a pair, and its profile on this machine. Raises ConfigError, ModelError, TaskError."""
    pool = ModelPool()
    times: dict[tuple[bool, int], Times] = {}
    for temperature in (1, 0):
        with composer() as hydra:
            methods = list(_methods(hydra, [*overrides, f"decoding.temperature={temperature}"], pool))
        use_threads(methods[0][0].engine)
        for batch in sorted({1, *batches}):
            turns = [(cell, method) for cell, method in methods if batch == 1 or (
                cell.rule.name == LOSSLESS and batch * method.drafter.nodes(cell.draft.length) <= LARGEST)]
            say(f"temperature {temperature}, batch {batch}: {len(turns)} methods take turns over {prompts} prompts")
            times[not temperature, batch] = _times(turns, prompts, batch)
    cell, threads = methods[0][0], torch.get_num_threads()
    together = {batch: [*times[False, batch].cycles.items(), *times[True, batch].cycles.items()] for _, batch in times}
    return cell.pair.name, Profile(
        title=f"{cell.environment([])['cpu']['model']}, {threads} threads, {cell.pair.name} in {cell.engine.dtype}",
        obtained="measured", sources=[f"python -m bench.microbench {' '.join(overrides)}"],
        target={batch: _verification(spent) for batch, spent in together.items()},
        rest=_fit([(size.nodes, spent["rest"]) for size, spent in together[1]]),
        prefill=_fit([*times[False, 1].prefills["none"], *times[True, 1].prefills["none"]]),
        sampled=_costs({batch: spent for (greedy, batch), spent in times.items() if not greedy}),
        greedy=_costs({batch: spent for (greedy, batch), spent in times.items() if greedy}))


def _methods(hydra: Composer, overrides: Sequence[str], pool: ModelPool) -> Iterator[tuple[Cell, Method]]:
    """Plain decoding, every drafter that the pair has, and every rule on two drafts that it can judge. Raises
    ConfigError, ModelError where not even plain decoding can run."""
    plain = hydra.point([*overrides, "drafter=none", "rule=lossless"]).cell
    yield plain, pool.method(plain)
    drafts = []
    for name, shapes in SHAPES.items():
        for shape in shapes:
            found = _possible(hydra, [*overrides, f"drafter={name}", *shape], pool)
            drafts += [f"drafter={name} {' '.join(shape)}".split()] if found else []
            yield from found
    judged = [draft for shape in JUDGED if (draft := shape.split()) in drafts]
    for rule in hydra.options("rule"):
        tried = (_possible(hydra, [*overrides, *draft, f"rule={rule}"], pool) for draft in judged)
        yield from islice((found for each in tried for found in each), 0 if rule == LOSSLESS else 2)


def _possible(hydra: Composer, overrides: Sequence[str], pool: ModelPool) -> list[tuple[Cell, Method]]:
    """The cell of these overrides and its method, if the pair has what it needs."""
    try:
        cell = hydra.point(overrides).cell
        return [(cell, pool.method(cell))]
    except ValueError:  # no such head, or a rule that needs what the drafter or the tokenizer does not have
        return []


def _times(methods: Sequence[tuple[Cell, Method]], prompts: int, batch: int) -> Times:
    """Of `batch` rows with one prompt."""
    first, target = methods[0][0], methods[0][1].target
    task = first.load_task()
    asked = task.prompts(prompts, first.seed)
    limits = Limits(NEW_TOKENS, limits_of(first, target, task).eos_ids)
    cycles: dict[Size, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    prefills: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number, prompt in enumerate([asked[0], *asked]):  # the first turn warms up
        ids, stream = context(target, prompt, []), stream_name(first, task, prompt, 0)
        requests = [Request(ids, f"{stream}/{row}") for row in range(batch)]
        for cell, method in methods:
            phases = Phases(target.device)
            answer, *_ = sorted(generate(method, requests, limits, phases), key=lambda each: -len(each.committed))
            if not number or not answer.committed:
                continue
            prefills[cell.drafter.name][len(ids)].append(answer.prefill_s)
            timed = [phases.times[name] for name in ("draft", "verify", "accept", "commit")]
            outside = max(0.0, batch * answer.decode_s - sum(map(sum, timed))) / len(answer.committed)
            for nodes, levels, draft, verify, accept, commit in zip(answer.nodes, answer.levels, *timed, strict=True):
                forwards = method.drafter.forwards(cell.draft.length, levels)
                spent = cycles[Size(cell.drafter.name, cell.rule.name, nodes, tuple(forwards))]
                for name, value in (("draft", draft), ("verify", verify), ("accept", accept),
                                    ("rest", commit + outside)):
                    spent[name].append(value)
    return Times({size: {name: statistics.median(values) for name, values in spent.items()}
                  for size, spent in cycles.items() if len(spent["draft"]) >= min(3, prompts)},
                 {name: [(tokens, statistics.median(values)) for tokens, values in spent.items()]
                  for name, spent in prefills.items()})


def _verification(times: Sequence[tuple[Size, Mapping[str, float]]]) -> dict[int, float]:
    """Tokens of a forward -> seconds, from the cycles of all methods."""
    of_tokens: dict[int, list[float]] = defaultdict(list)
    for size, spent in times:
        of_tokens[size.nodes + 1].append(spent["verify"])
    return rising({tokens: statistics.median(values) for tokens, values in of_tokens.items()})


def rising(seconds: Mapping[int, float]) -> dict[int, float]:
    """The nearest times that do not fall with the tokens: what falls is noise."""
    tokens = sorted(seconds)
    return dict(zip(tokens, map(float, isotonic_regression([seconds[each] for each in tokens]).x), strict=True))


def _costs(times: Mapping[int, Times]) -> Costs:
    """What depends on the method, from the cycles of each batch."""
    drafts: dict[str, dict[int, Drafting]] = defaultdict(dict)
    plain = dict(times[1].prefills["none"])
    for batch, of_batch in ((batch, each.cycles) for batch, each in times.items()):
        for name in {size.drafter for size in of_batch} - {"none"}:
            own = [(size.forwards, spent["draft"]) for size, spent in of_batch.items() if size.drafter == name]
            rows = [(1.0, float(len(forwards)), float(sum(forwards))) for forwards, _ in own]
            cycle, forward, token = _least_squares(rows, [seconds for _, seconds in own])
            reading = _fit([(tokens, max(seconds - plain[tokens], 0.0)) for tokens, seconds in times[1].prefills[name]],
                           [plain[tokens] for tokens, _ in times[1].prefills[name]])
            drafts[name][batch] = Drafting(cycle=cycle, forward=forward, token=token, prefill=reading)
    rules = sorted({size.rule for size in times[1].cycles})
    return Costs(drafts=dict(drafts), accept={
        rule: _fit([(size.nodes, spent["accept"]) for size, spent in times[1].cycles.items() if size.rule == rule])
        for rule in rules})


def _fit(points: Sequence[tuple[int, float]], beside: Sequence[float] | None = None) -> Linear:
    """Seconds of a cycle and of a node, from (nodes, seconds)."""
    rows = [(1.0, float(nodes)) for nodes, _ in points]
    cycle, node = _least_squares(rows, [seconds for _, seconds in points], beside)
    return Linear(cycle=cycle, node=node)


def _least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float],
                   beside: Sequence[float] | None = None) -> list[float]:
    """Coefficients, none below 0, of the smallest squared error in relation to the seconds, or to those `beside`."""
    weight = 1 / np.maximum(np.array(seconds if beside is None else beside), 1e-9)
    return [float(value) for value in nnls(np.array(rows) * weight[:, None], np.array(seconds) * weight)[0]]
