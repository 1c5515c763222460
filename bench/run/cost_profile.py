"""Measure what the parts of a cycle cost on this machine, and fit prices, as
`results.metrics.cost.Profile` has them.

Methods of a pair take turns over a few prompts, with the clock of each phase
(`bench.run.phases`): each part is timed inside the loop, with the caches as decoding leaves them.
Reading a prompt costs a drafter the time by which its method reads it more slowly than plain
decoding. All prices are fitted to medians over cycles of equal size by least squares of relative
errors, no price below 0 (`least_squares`).

`measure` is the whole: `_turns` loads the methods, `_times` times them, and `verification`,
`costs_of` and `linear` fit the prices. Drafting and verification are priced for each number of
rows, all rows together; all else has the price of a single row."""

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
from bench.run.phases import PHASES, Phases
from methods.decode import Limits, Request, generate
from methods.engine.source import ModelSource
from results.metrics.cost import DRAWN, LOSSLESS, Costs, Drafting, Linear, Profile

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from methods.batch import Generation
    from methods.method import Method

CHAINS = ("draft.length=3", "draft.length=7")
"""Lengths of chains: drafts in which every token has one child."""
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
"""Trees whose cycles take long on a CPU: they are timed for fewer tokens (`Turn.brief`)."""
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
"""Drafter -> for each of its drafts whose cycles are timed, the overrides beside `drafter=`."""
JUDGED = (
    "drafter=eagle3 drafter.tree=chain draft.length=3",
    f"drafter=eagle3 {' '.join(TREE)}",
    "drafter=eagle3 drafter.tree=chain draft.length=7",
    "drafter=model draft.length=3",
    "drafter=model draft.length=7",
    "drafter=early_exit draft.length=3",
    "drafter=early_exit draft.length=7",
)
"""Drafts on which rules are timed, each in the words of `SHAPES` and as a rule can judge them: it
is timed on the first two that it can. Two sizes give a price of a cycle and one of a node."""
FITTED = {
    "arc": ["rule.constants=${pair.arc}"],
    "arc_released": ["rule.constants=${pair.arc}"],
    "autojudge": ["rule.classifier=${pair.autojudge}"],
}
"""Rule -> overrides with what was fitted to the pair."""
NEW_TOKENS = 24
"""Of each answer."""
FEW_TOKENS, FEW_PROMPTS = 10, 2
"""New tokens of each answer, and prompts, of a brief turn."""
WARM_UP = 4
"""New tokens of the first round of turns, which is not timed."""
PLAIN_TURNS = 2
"""Turns of plain decoding on each prompt, beside the one that comes first."""
LARGEST = 512
"""Tokens of one forward of a batch, all its rows together: more take seconds on a CPU."""


@dataclass(frozen=True, slots=True)
class Size:
    """What the seconds of a cycle's phases depend on.

    drafter   as the profile names it (`bench.run.cost_clock.priced_as`).
    rule      its name.
    nodes     draft tokens that are verified.
    forwards  tokens of each forward of the drafter's model; empty without a model.
    carried   what the draft carries beside its tokens: its distribution, its hidden states, the
              distribution behind its last token.
    """

    drafter: str
    rule: str
    nodes: int
    forwards: tuple[int, ...]
    carried: tuple[bool, bool, bool]


Spent = Mapping[str, float]
"""Part of a cycle ("draft", "verify", "accept", "rest") -> seconds, of all rows together."""


@dataclass(frozen=True, slots=True)
class Times:
    """What was timed at one temperature and batch, in seconds.

    cycles    size of a cycle -> median of each of its parts.
    prefills  drafter -> (tokens, median) of reading prompts of so many tokens, of one row: for
              "none" with the target, for a drafter what it adds to that.
    """

    cycles: Mapping[Size, Spent]
    prefills: Mapping[str, Sequence[tuple[int, float]]]

    @property
    def lossless(self) -> list[tuple[Size, Spent]]:
        """The cycles of the lossless rule alone: other rules may ask drafts to carry more, or
        less."""
        return [(size, spent) for size, spent in self.cycles.items() if size.rule == LOSSLESS]


Cycles = dict[Size, dict[str, list[float]]]
"""Size of a cycle -> part of it -> seconds, one number for each cycle of this size."""
Prefilled = dict[str, dict[int, list[float]]]
"""Drafter -> tokens of a prompt -> seconds of reading it, one number for each turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A method whose cycles are timed. `brief`: on FEW_PROMPTS prompts, for FEW_TOKENS tokens, and
    without the time of reading them."""

    cell: Cell
    method: Method
    brief: bool

    @property
    def name(self) -> str:
        """The name of its drafter in the profile; "none" in plain decoding."""
        return priced_as(self.method.drafter, self.cell.drafter.name, self.cell.decoding.sampling)


def measure(
    overrides: Sequence[str], prompts: int, batches: Sequence[int], say: Callable[[str], None]
) -> Profile:
    """The profile of a pair on this machine, from so many prompts, at these numbers of rows and at
    1; `say` is told what begins. Raises ConfigError, ModelError, TaskError."""
    pool = ModelPool()
    times: dict[bool, dict[int, Times]] = {False: {}, True: {}}  # is greedy -> batch -> times
    with composer() as hydra:
        turns = [
            turn
            for temperature in (1, 0)
            for turn in _turns(hydra, [*overrides, f"decoding.temperature={temperature}"], pool)
        ]
    use_threads(turns[0].cell.engine)
    for batch in sorted({1, *batches}):
        due = [turn for turn in turns if _is_timed_at(batch, turn)]
        say(f"batch {batch}: {len(due)} methods take turns over {prompts} prompts")
        for is_greedy, timed in _times(due, prompts, batch).items():
            times[is_greedy][batch] = timed
    sampled, greedy = times[False], times[True]
    # the temperature changes neither a forward of the target nor the rest
    together = {batch: sampled[batch].lossless + greedy[batch].lossless for batch in sampled}
    target = {batch: verification(cycles) for batch, cycles in together.items()}
    return Profile(
        title=_title(turns[0].cell, target[1][1]),
        sources=[f"python -m bench.cost {' '.join(overrides)}"],
        target=target,
        rest=linear([(size.nodes, spent["rest"]) for size, spent in together[1]]),
        prefill=linear([*sampled[1].prefills["none"], *greedy[1].prefills["none"]]),
        sampled=costs_of(sampled),
        greedy=costs_of(greedy),
    )


def _is_timed_at(batch: int, turn: Turn) -> bool:
    """Whether the method is timed with so many rows. With several only the lossless rule is, since
    rules have the price of a single row, and only with drafts that are not too large."""
    if batch == 1:
        return True
    tokens = batch * turn.method.drafter.nodes(turn.cell.draft.length)
    return turn.cell.rule.name == LOSSLESS and tokens <= LARGEST


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
    yield Turn(plain, pool.load(plain).method, brief=False)
    drafts = []
    for name, shapes in SHAPES.items():
        for shape in shapes:
            draft = [f"drafter={name}", *shape]
            turn = _possible(hydra, [*overrides, *draft], pool, brief=shape in LARGE)
            if turn is not None:
                drafts.append(draft)
                yield turn
    judged = [draft for draft in map(str.split, JUDGED) if draft in drafts]
    for rule in hydra.options("rule"):
        if rule == LOSSLESS:
            continue
        words = [f"rule={rule}", *FITTED.get(rule, [])]
        # lazily: no further draft is tried, nor its models loaded, once two can be judged
        tried = (
            _possible(hydra, [*overrides, *draft, *words], pool, brief=True) for draft in judged
        )
        yield from islice(filter(None, tried), 2)


def _possible(
    hydra: Composer, overrides: Sequence[str], pool: ModelPool, *, brief: bool
) -> Turn | None:
    """The turn of the cell of these overrides; None where the pair lacks what it needs."""
    try:
        cell = hydra.point(overrides).cell
        return Turn(cell, pool.load(cell).method, brief)
    # no such head, or a rule that needs what the drafter or the tokenizer does not have
    except ValueError:
        return None


def _times(turns: Sequence[Turn], prompts: int, batch: int) -> dict[bool, Times]:
    """Is greedy -> what these methods took, on so many prompts. A batch has `batch` rows with the
    same prompt, each with a random stream of its own.

    The order is another for each prompt, and plain decoding, on which every speedup depends, has
    several turns: the machine's noise should meet all alike. One of them comes first: what a
    drafter adds to reading the prompt is told by comparison with it."""
    first, target = turns[0].cell, turns[0].method.target
    task = first.load_task()
    eos = limits_of(first, target, task).eos_ids
    asked = task.prompts(prompts, first.seed)
    kinds = (False, True)  # above temperature 0, and at it
    cycles: dict[bool, Cycles] = {kind: defaultdict(lambda: defaultdict(list)) for kind in kinds}
    prefills: dict[bool, Prefilled] = {
        kind: defaultdict(lambda: defaultdict(list)) for kind in kinds
    }
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
            # the row that ended last has all cycles of the batch, as the phases have
            answer = max(answers, key=lambda answer: len(answer.committed))
            if number < 0 or len(answer.committed) < 2:  # the first cycle does not count
                continue
            _add_cycles(turn, answer, phases, batch, cycles[greedy])
            _add_prefill(turn, len(ids), _reading_s(answer, phases, batch), prefills[greedy])
    # a size that was seen once may be noise alone
    least = min(2, prompts)
    return {kind: _medians(cycles[kind], prefills[kind], least) for kind in kinds}


def _add_cycles(turn: Turn, answer: Generation, phases: Phases, batch: int, cycles: Cycles) -> None:
    """Add the cycles of an answer but the first, in which a head reads the prompt. What the loop
    does between the phases is divided equally over all cycles."""
    timed = [phases.times[name] for name in PHASES]
    decode_s = batch * answer.decode_s  # of the batch: a row has its share
    outside = max(0.0, decode_s - sum(map(sum, timed))) / len(answer.committed)
    draft = turn.method.draft
    carried = draft.needs_q, draft.needs_hidden, draft.bonus_q
    each = zip(answer.nodes, answer.levels, *timed, strict=True)
    for nodes, levels, drafting_s, verify_s, accept_s, commit_s in islice(each, 1, None):
        forwards = turn.method.drafter.forwards(turn.cell.draft.length, levels)
        spent = cycles[Size(turn.name, turn.cell.rule.name, nodes, tuple(forwards), carried)]
        spent["draft"].append(drafting_s)
        spent["verify"].append(verify_s)
        spent["accept"].append(accept_s)
        spent["rest"].append(commit_s + outside)


def _reading_s(answer: Generation, phases: Phases, batch: int) -> float:
    """Seconds of one row for reading the prompt, in the target and in the drafter: the prefill, and
    what the first draft takes longer than the others."""
    first, *others = phases.times["draft"]
    return answer.prefill_s + max(0.0, first - statistics.median(others)) / batch


def _add_prefill(turn: Turn, tokens: int, reading_s: float, prefills: Prefilled) -> None:
    """Add the seconds of reading a prompt of so many tokens. Those of plain decoding count as they
    are, those of others less what the last turn of plain decoding took."""
    of_target = prefills["none"]
    if turn.name == "none":
        of_target[tokens].append(reading_s)
    elif not turn.brief and tokens in of_target:
        prefills[turn.name][tokens].append(max(0.0, reading_s - of_target[tokens][-1]))


def _medians(cycles: Cycles, prefills: Prefilled, least: int) -> Times:
    """The medians of all seconds. Sizes with fewer than `least` cycles are left out."""
    return Times(
        {
            size: {part: statistics.median(values) for part, values in spent.items()}
            for size, spent in cycles.items()
            if len(spent["draft"]) >= least
        },
        {
            name: [(tokens, statistics.median(values)) for tokens, values in by_tokens.items()]
            for name, by_tokens in prefills.items()
        },
    )


def verification(times: Sequence[tuple[Size, Spent]]) -> dict[int, float]:
    """Tokens of a row's forward in the target -> seconds, from the cycles of several methods: the
    nodes of a draft and its root."""
    forwards = [(size.nodes + 1,) for size, _ in times]
    knots = sorted({tokens for (tokens,) in forwards})
    rises = least_squares(steps(forwards, knots), [spent["verify"] for _, spent in times])
    return dict(zip(knots, np.cumsum(rises).tolist(), strict=True))


def steps(forwards: Sequence[Sequence[int]], knots: Sequence[int]) -> list[list[float]]:
    """[sequences, knots]: how often each rise of a price counts in each sequence of forwards.

    The price of a forward is linear in its tokens between the knots. Its first rise is the price at
    the first knot, each other what it grows by from the knot before: with no rise below 0, more
    tokens never take less. With knots 1 and 4, forwards of 1, 4 and 2 tokens cost r1 + (r1 + r2) +
    (r1 + r2/3): a row of 3 and 4/3."""
    # row k: how much of rise k is in the price at each knot, nothing before its own
    rises = np.triu(np.ones((len(knots), len(knots))))
    return [[float(np.interp(tokens, knots, rise).sum()) for rise in rises] for tokens in forwards]


def costs_of(times: Mapping[int, Times]) -> Costs:
    """What depends on the method, from batch -> what was timed at it. Rules and the reading of
    prompts are priced from single rows."""
    drafts: dict[str, dict[int, Drafting]] = defaultdict(dict)
    for batch, at_batch in times.items():
        names = {size.drafter for size, _ in at_batch.lossless}
        for name in sorted(names - {"none"}):
            timed = [
                (size.forwards, spent["draft"])
                for size, spent in at_batch.lossless
                if size.drafter == name
            ]
            reading = times[1].prefills.get(name)
            prefill = linear(reading) if reading else Linear(cycle=0.0)
            # a drafter all of whose drafts are drawn needs no second name
            undrawn = name.removesuffix(DRAWN)
            priced_name = name if undrawn in names else undrawn
            drafts[priced_name][batch] = drafting(timed).model_copy(update={"prefill": prefill})
    rules = sorted({size.rule for size in times[1].cycles})
    return Costs(drafts=dict(drafts), accept={rule: acceptance(rule, times[1]) for rule in rules})


def drafting(timed: Sequence[tuple[tuple[int, ...], float]]) -> Drafting:
    """The price of drafting, from (tokens of each forward, seconds) of drafts.

    Every number of tokens that a forward has is a knot of the price, where there are more shapes of
    drafts than such numbers: the price of a cycle is fitted as well. Else only the least and the
    largest are."""
    tokens = sorted({token for forwards, _ in timed for token in forwards})
    shapes = {forwards for forwards, _ in timed}
    knots = tokens if len(tokens) < len(shapes) else sorted({*tokens[:1], *tokens[-1:]})
    rows = [[1.0, *counts] for counts in steps([forwards for forwards, _ in timed], knots)]
    cycle, *rises = least_squares(rows, [seconds for _, seconds in timed])
    return Drafting(cycle=cycle, forwards=dict(zip(knots, np.cumsum(rises).tolist(), strict=True)))


def acceptance(rule: str, times: Times) -> Linear:
    """What a rule adds to the price of a cycle: accepting, and what its drafts take longer, or less
    long, than those of the lossless rule because they carry something else.

    The drafts of all rules that ask for the same are taken together: a rule that asks for nothing
    but what the lossless one does adds nothing to drafting, whatever the noise."""
    draft_s: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for size, spent in times.cycles.items():
        draft_s[size.drafter, size.forwards, size.carried].append(spent["draft"])
    lossless = {(size.drafter, size.forwards): size.carried for size, _ in times.lossless}
    points = []
    for size, spent in times.cycles.items():
        if size.rule == rule:
            draft = size.drafter, size.forwards
            as_asked = statistics.median(draft_s[*draft, size.carried])
            as_lossless = statistics.median(draft_s[*draft, lossless.get(draft, size.carried)])
            points.append((size.nodes, max(0.0, spent["accept"] + as_asked - as_lossless)))
    return linear(points)


def linear(points: Sequence[tuple[int, float]]) -> Linear:
    """Seconds of a cycle and of a node, from (nodes, seconds) of cycles; or of a prompt and of its
    tokens, from (tokens, seconds)."""
    rows = [(1.0, float(nodes)) for nodes, _ in points]
    cycle, node = least_squares(rows, [seconds for _, seconds in points])
    return Linear(cycle=cycle, node=node)


def least_squares(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """[k] coefficients c ≥ 0 with the smallest Σ ((row · c - s) / s)² over rows [n, k] and seconds
    s [n]. As a divisor s is at least a tenth of the median, so that a cycle that cost almost
    nothing does not outweigh all others."""
    floor = max(0.1 * float(np.median(seconds)), 1e-9)
    weight = 1 / np.maximum(np.array(seconds), floor)
    fitted, _ = nnls(np.array(rows) * weight[:, None], np.array(seconds) * weight)
    coefficients: list[float] = fitted.tolist()
    return coefficients
