"""Measure what the parts of a cycle cost on this machine, and fit prices, as
`results.metrics.cost.Profile` has them.

Methods of a pair take turns over a few prompts, with the clock of each phase
(`bench.run.profiling`): each part is timed inside the loop, with the caches as decoding leaves
them. What a drafter reads of the prompt is what its method takes longer for it than plain decoding.
All prices are fitted to medians over cycles of equal size by least squares of relative errors, no
price below 0 (`least_squares`)."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import nnls

from bench.config.compose import composer
from bench.run.answer import context, limits_of, stream_name
from bench.run.cost_clock import priced_as
from bench.run.models import ModelPool, use_threads
from bench.run.phases import Phases
from methods.decode import Limits, Request, generate
from methods.engine.source import ModelSource
from results.metrics.cost import DRAWN, LOSSLESS, Costs, Drafting, Linear, Profile

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from methods.batch import Generation
    from methods.method import Method

CHAINS = ("draft.length=3", "draft.length=7")
TREE = ("drafter.total=16", "drafter.depth=3", "drafter.top_k=4")
TREES = (
    ("drafter.total=${pair.nodes}", "drafter.depth=6", "drafter.top_k=${pair.beams}"),
    ("drafter.total=${pair.nodes}", "drafter.depth=3", "drafter.top_k=${pair.beams}"),
    TREE,
)
DRAWN_TREE = ("drafter.tree=sampled", "drafter.branching=[2,2]", "draft.length=7")
LARGE = (
    ("drafter.total=32", "drafter.depth=5", "drafter.top_k=8"),
    ("drafter.total=64", "drafter.depth=6", "drafter.top_k=10"),
)
"""Their cycles take long on a CPU: they are timed for fewer tokens."""
CHAIN_SHAPES = [[length] for length in CHAINS]
HEAD_SHAPES = [
    *([f"drafter.tree={tree}", length] for tree in ("chain", "sampled") for length in CHAINS),
    DRAWN_TREE,
    *TREES,
    *LARGE,
]
SHAPES: Mapping[str, Sequence[Sequence[str]]] = {
    "model": [["draft.length=1"], *CHAIN_SHAPES],
    "early_exit": CHAIN_SHAPES,
    "prompt_lookup": CHAIN_SHAPES,
    "suffix": CHAIN_SHAPES,
    "medusa": [[]],
    "eagle": [[]],
    "lookahead": [[]],
    "eagle3": HEAD_SHAPES,
    "eagle2": HEAD_SHAPES,
    "hass": HEAD_SHAPES,
}
"""Drafter -> overrides of the drafts whose cycles are timed."""
JUDGED = (
    "drafter=eagle3 drafter.tree=chain draft.length=3",
    f"drafter=eagle3 {' '.join(TREE)}",
    "drafter=eagle3 drafter.tree=chain draft.length=7",
    "drafter=model draft.length=3",
    "drafter=model draft.length=7",
    "drafter=early_exit draft.length=3",
    "drafter=early_exit draft.length=7",
)
"""Drafts on which rules are timed: the first two that a rule can judge."""
FITTED = {
    "arc": ["rule.constants=${pair.arc}"],
    "arc_released": ["rule.constants=${pair.arc}"],
    "autojudge": ["rule.classifier=${pair.autojudge}"],
}
"""Rule -> overrides with what was fitted to the pair."""
NEW_TOKENS, FEW_TOKENS, FEW_PROMPTS, WARM_UP, PLAIN_TURNS, LARGEST = 24, 10, 2, 4, 2, 512
"""New tokens of an answer; those, and the prompts, of a rule or a large tree; new tokens of the
first turn, which is not timed; further turns of plain decoding on each prompt; tokens of the
largest batch's forward: more take seconds on a CPU."""


@dataclass(frozen=True, slots=True)
class Size:
    """What the seconds of a cycle's phases depend on.

    drafter   as the profile names it (`results.metrics.cost.DRAWN`).
    nodes     draft tokens that are verified.
    forwards  tokens of each forward of the drafter's model.
    carried   whether the draft carries its distribution, its hidden states, and the distribution
              behind its last token.
    """

    drafter: str
    rule: str
    nodes: int
    forwards: tuple[int, ...]
    carried: tuple[bool, bool, bool]


Spent = Mapping[str, float]
"""Phase of a cycle -> seconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """What was timed at one temperature and batch, in seconds.

    cycles    size of a cycle -> median of each of its phases.
    prefills  drafter -> prompt tokens and median, of each prompt: of reading it with the target for
              "none", and for the others of what the drafter adds.
    """

    cycles: Mapping[Size, Spent]
    prefills: Mapping[str, Sequence[tuple[int, float]]]

    @property
    def lossless(self) -> list[tuple[Size, Spent]]:
        """The cycles of the lossless rule: a rule may ask drafts for more, or for less."""
        return [(size, spent) for size, spent in self.cycles.items() if size.rule == LOSSLESS]


Cycles = dict[Size, dict[str, list[float]]]
"""Size of a cycle -> phase -> seconds of each."""
Prefilled = dict[str, dict[int, list[float]]]
"""Drafter -> tokens of a prompt -> seconds of reading it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A method whose cycles are timed. `brief`: over FEW_PROMPTS and FEW_TOKENS."""

    cell: Cell
    method: Method
    brief: bool

    @property
    def name(self) -> str:
        """Of the drafter, in the profile."""
        return priced_as(self.method.drafter, self.cell.drafter.name, self.cell.decoding.sampling)


def measure(
    overrides: Sequence[str], prompts: int, batches: Sequence[int], say: Callable[[str], None]
) -> Profile:
    """The profile of a pair on this machine. Raises ConfigError, ModelError, TaskError."""
    pool = ModelPool()
    times: dict[bool, dict[int, Times]] = {True: {}, False: {}}
    with composer() as hydra:
        turns = [
            turn
            for temperature in (1, 0)
            for turn in _turns(hydra, [*overrides, f"decoding.temperature={temperature}"], pool)
        ]
    use_threads(turns[0].cell.engine)
    for batch in sorted({1, *batches}):
        fitting = [
            turn
            for turn in turns
            if batch == 1
            or (
                turn.cell.rule.name == LOSSLESS
                and batch * turn.method.drafter.nodes(turn.cell.draft.length) <= LARGEST
            )
        ]
        say(f"batch {batch}: {len(fitting)} methods take turns over {prompts} prompts")
        for is_greedy, timed in _times(fitting, prompts, batch).items():
            times[is_greedy][batch] = timed
    sampled, greedy = times[False], times[True]
    together = {batch: sampled[batch].lossless + greedy[batch].lossless for batch in sampled}
    target = {batch: verification(spent) for batch, spent in together.items()}
    return Profile(
        title=_title(turns[0].cell, target[1][1]),
        sources=[f"python -m bench.cost {' '.join(overrides)}"],
        target=target,
        rest=linear([(size.nodes, spent["rest"]) for size, spent in together[1]]),
        prefill=linear([*sampled[1].prefills["none"], *greedy[1].prefills["none"]]),
        sampled=costs_of(sampled),
        greedy=costs_of(greedy),
    )


def _title(cell: Cell, token_s: float) -> str:
    """Machine, seconds of one token of plain decoding, model and engine, for captions."""
    environment = cell.environment([])
    cpu = environment["cpu"]
    machine = f"{cpu['model']} ({cpu['family']}), {torch.get_num_threads()} cores"
    if environment["accelerator"]:
        machine = environment["accelerator"]["name"]
    target = ModelSource.of(cell.pair.target.source)
    model = f"{target.folder.name} of random weights" if target.is_random else cell.pair.name
    graphs = " with CUDA graphs" if cell.engine.graphs == "on" else ""
    return f"{machine}, {1000 * token_s:.3g} ms per token, {model} in {cell.engine.dtype}{graphs}"


def _turns(hydra: Composer, overrides: Sequence[str], pool: ModelPool) -> Iterator[Turn]:
    """Plain decoding, every drafter that the pair has, and every rule on two drafts that it can
    judge. Raises ConfigError, ModelError where not even plain decoding can run."""
    plain = hydra.point([*overrides, "drafter=none", "rule=lossless"]).cell
    yield Turn(plain, pool.load(plain).method, False)
    drafts = []
    for name, shapes in SHAPES.items():
        for shape in shapes:
            draft = [f"drafter={name}", *shape]
            if turn := _possible(hydra, [*overrides, *draft], pool, shape in LARGE):
                drafts.append(draft)
                yield turn
    judged = [draft for draft in map(str.split, JUDGED) if draft in drafts]
    for rule in hydra.options("rule"):
        if rule == LOSSLESS:
            continue
        words = [f"rule={rule}", *FITTED.get(rule, [])]
        tried = (_possible(hydra, [*overrides, *draft, *words], pool, True) for draft in judged)
        yield from islice(filter(None, tried), 2)


def _possible(
    hydra: Composer, overrides: Sequence[str], pool: ModelPool, brief: bool
) -> Turn | None:
    """The turn of the cell of these overrides, if the pair has what it needs."""
    try:
        cell = hydra.point(overrides).cell
        return Turn(cell, pool.load(cell).method, brief)
    # no such head, or a rule that needs what the drafter or the tokenizer does not have
    except ValueError:
        return None


def _times(turns: Sequence[Turn], prompts: int, batch: int) -> dict[bool, Times]:
    """Of `batch` rows with one prompt, above temperature 0 and at it. The order is another for each
    prompt, and plain decoding, on which every speedup depends, has several turns: the machine's
    noise should meet all alike."""
    first, target = turns[0].cell, turns[0].method.target
    task = first.load_task()
    eos = limits_of(first, target, task).eos_ids
    asked = task.prompts(prompts, first.seed)
    kinds = (False, True)
    cycles: list[Cycles] = [defaultdict(lambda: defaultdict(list)) for _ in kinds]
    prefills: list[Prefilled] = [defaultdict(lambda: defaultdict(list)) for _ in kinds]
    plain = [turn for turn in turns if turn.name == "none"]
    others = [turn for turn in turns if turn.name != "none"]
    for number, prompt in enumerate([asked[0], *asked], start=-1):  # number -1 warms up
        ids, stream = context(target, prompt, []), stream_name(first, task, prompt, 0)
        requests = [Request(ids, f"{stream}/{row}") for row in range(batch)]
        order = [*others, *plain * PLAIN_TURNS]
        Random(number).shuffle(order)
        for turn in [*plain, *order]:
            if turn.brief and not 0 <= number < FEW_PROMPTS:
                continue
            new = FEW_TOKENS if turn.brief else NEW_TOKENS
            limits = Limits(WARM_UP if number < 0 else new, eos)
            phases, greedy = Phases(target.device), turn.cell.decoding.sampling.greedy
            answers = generate(turn.method, requests, limits, phases)
            answer = max(answers, key=lambda answer: len(answer.committed))
            if number >= 0 and len(answer.committed) > 1:
                name = turn.name
                reading = _note(turn, answer, phases, batch, cycles[greedy])
                targets = prefills[greedy]["none"].get(len(ids), [])
                if name != "none" and targets:
                    reading = max(0.0, reading - targets[-1])
                if not turn.brief and (targets or name == "none"):
                    prefills[greedy][name][len(ids)].append(reading)
    return {
        greedy: Times(
            {
                size: {name: statistics.median(values) for name, values in spent.items()}
                for size, spent in cycles[greedy].items()
                if len(spent["draft"]) >= min(2, prompts)
            },
            {
                name: [(tokens, statistics.median(values)) for tokens, values in spent.items()]
                for name, spent in prefills[greedy].items()
            },
        )
        for greedy in kinds
    }


def _note(turn: Turn, answer: Generation, phases: Phases, batch: int, cycles: Cycles) -> float:
    """Add the cycles of an answer but the first, in which a head reads the prompt; returns the
    seconds of reading it, those of the target included."""
    timed = [phases.times[name] for name in ("draft", "verify", "accept", "commit")]
    outside = max(0.0, batch * answer.decode_s - sum(map(sum, timed))) / len(answer.committed)
    draft = turn.method.draft
    carried = draft.needs_q, draft.needs_hidden, draft.bonus_q
    each = zip(answer.nodes, answer.levels, *timed, strict=True)
    for nodes, levels, drafting, verify, accept, commit in islice(each, 1, None):
        forwards = turn.method.drafter.forwards(turn.cell.draft.length, levels)
        spent = cycles[Size(turn.name, turn.cell.rule.name, nodes, tuple(forwards), carried)]
        spent["draft"].append(drafting)
        spent["verify"].append(verify)
        spent["accept"].append(accept)
        spent["rest"].append(commit + outside)
    first, *others = timed[0]
    return answer.prefill_s + max(0.0, first - statistics.median(others)) / batch


def verification(times: Sequence[tuple[Size, Spent]]) -> dict[int, float]:
    """Tokens of a forward -> seconds, from the cycles of several methods."""
    forwards = [(size.nodes + 1,) for size, _ in times]
    knots = sorted({tokens for (tokens,) in forwards})
    rises = least_squares(steps(forwards, knots), [spent["verify"] for _, spent in times])
    return dict(zip(knots, np.cumsum(rises).tolist(), strict=True))


def steps(forwards: Sequence[Sequence[int]], knots: Sequence[int]) -> list[list[float]]:
    """For each sequence of forwards how often each rise counts of a price that is linear between
    the knots: the rise at the first knot is the price there, each other what the price grows by
    from the knot before, so that more tokens never take less."""
    rises = np.triu(np.ones((len(knots), len(knots))))
    return [[float(np.interp(tokens, knots, rise).sum()) for rise in rises] for tokens in forwards]


def costs_of(times: Mapping[int, Times]) -> Costs:
    """What depends on the method, from what was timed at each batch."""
    drafts: dict[str, dict[int, Drafting]] = defaultdict(dict)
    for batch, timed_cycles in times.items():
        names = {size.drafter for size, _ in timed_cycles.lossless}
        for name in sorted(names - {"none"}):
            timed = [
                (size.forwards, spent["draft"])
                for size, spent in timed_cycles.lossless
                if size.drafter == name
            ]
            reading = times[1].prefills.get(name)
            plain = name.removesuffix(DRAWN)
            drafts[name if plain in names else plain][batch] = drafting(timed).model_copy(
                update={"prefill": linear(reading) if reading else Linear(cycle=0.0)}
            )
    rules = sorted({size.rule for size in times[1].cycles})
    return Costs(drafts=dict(drafts), accept={rule: acceptance(rule, times[1]) for rule in rules})


def drafting(timed: Sequence[tuple[tuple[int, ...], float]]) -> Drafting:
    """From the forwards of drafts and their seconds. A number of tokens has a price of its own
    where there are more shapes of drafts than such numbers; else only the least and the largest."""
    tokens = sorted({token for forwards, _ in timed for token in forwards})
    shapes = {forwards for forwards, _ in timed}
    knots = tokens if len(tokens) < len(shapes) else sorted({*tokens[:1], *tokens[-1:]})
    rows = [[1.0, *counts] for counts in steps([forwards for forwards, _ in timed], knots)]
    cycle, *rises = least_squares(rows, [seconds for _, seconds in timed])
    return Drafting(cycle=cycle, forwards=dict(zip(knots, np.cumsum(rises).tolist(), strict=True)))


def acceptance(rule: str, times: Times) -> Linear:
    """What a rule's cycles cost beside drafting and verification under the lossless rule:
    accepting, and what drafts cost more, or less, that carry something else. The drafts of all
    rules that ask for the same are compared."""
    drafts: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for size, spent in times.cycles.items():
        drafts[size.drafter, size.forwards, size.carried].append(spent["draft"])
    usual = {(size.drafter, size.forwards): size.carried for size, _ in times.lossless}
    points = []
    for size, spent in times.cycles.items():
        if size.rule == rule:
            draft = size.drafter, size.forwards
            asked = statistics.median(drafts[*draft, size.carried])
            plain = statistics.median(drafts[*draft, usual.get(draft, size.carried)])
            points.append((size.nodes, max(0.0, spent["accept"] + asked - plain)))
    return linear(points)


def linear(points: Sequence[tuple[int, float]]) -> Linear:
    """Seconds of a cycle and of a node, from (nodes, seconds)."""
    rows = [(1.0, float(nodes)) for nodes, _ in points]
    cycle, node = least_squares(rows, [seconds for _, seconds in points])
    return Linear(cycle=cycle, node=node)


def least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Coefficients, none below 0, of the smallest squared error in relation to the seconds, each of
    which counts as at least a tenth of their median."""
    weight = 1 / np.maximum(np.array(seconds), max(0.1 * float(np.median(seconds)), 1e-9))
    fitted, _ = nnls(np.array(rows) * weight[:, None], np.array(seconds) * weight)
    coefficients: list[float] = fitted.tolist()
    return coefficients
