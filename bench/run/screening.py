"""What settings of rules do: on the drafts of one lossless decode, on contexts of a file, and
decoded by themselves. The overrides that choose a setting are its name here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bench.config.environment import code_digest
from bench.config.errors import ConfigError
from bench.config.paths import portable
from bench.config.section import parse
from bench.run.answer import answer, limits_of, stream_name
from bench.run.cost_clock import clocks_of
from bench.run.models import ModelPool, NativeMethod
from bench.run.one_cell import open_cell
from bench.run.run import run
from bench.run.session import Session
from methods import registry, screen
from methods.batch import Generation
from methods.contexts import Contexts, Recorder
from methods.engine.source import ModelError
from methods.rules.base import DraftCapabilities
from results.store.errors import StoreError, one_line
from results.store.sample import FailedSample, Sample

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from methods.decode import Limits, Request
    from methods.method import Method
    from methods.rules.base import Rule
    from methods.screen import Screened
    from results.metrics.cost import Profile
    from results.metrics.delta import Floats
    from tasks.base import Prompt

Overrides = tuple[str, ...]
"""Those that choose a rule and its options: `("rule=mars", "rule.theta=0.9")`."""
PLAIN_CYCLE = Generation(committed=[1], nodes=[0], levels=[0])


@dataclass(slots=True)
class Tally:
    """What all settings do in each request, a turn of a prompt.

    prompts  the number of each request's prompt.
    emitted  tokens that each emitted.
    rows     of each setting and request: expected tokens, expected nats, cycles.
    refused  why a setting was not screened, or why its numbers are not known.
    no_law   why a setting has no distortion.
    seconds  of CPU that the rule of a setting took.
    failed   number of a prompt that failed -> a line that says why.
    generations  of the lossless decode, of each request; none of a replay.
    cells    the cell of each setting; none of a replay.
    source   where the contexts of a replay came from.
    """

    prompts: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    rows: dict[Overrides, list[Floats]] = field(default_factory=dict)
    refused: dict[Overrides, str] = field(default_factory=dict)
    no_law: dict[Overrides, str] = field(default_factory=dict)
    seconds: dict[Overrides, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    cells: dict[Overrides, Cell] = field(default_factory=dict)
    source: str = ""

    def add(
        self, prompts: Sequence[int], emitted: Sequence[int], screens: Mapping[Overrides, Screened]
    ) -> None:
        """Take the requests of one decode."""
        self.prompts += prompts
        self.emitted += emitted
        for setting, screened in screens.items():
            self.rows.setdefault(setting, []).extend(screened.rows.numpy())
            self.seconds[setting] = self.seconds.get(setting, 0.0) + screened.seconds
            if screened.unknown:
                self.refused[setting] = screened.unknown
            if screened.no_law:
                self.no_law[setting] = screened.no_law

    def fail(self, prompt: int, reason: str) -> None:
        """A prompt has failed in one of its turns: forget what the others gave."""
        self.failed[prompt] = reason
        stays = [place for place, number in enumerate(self.prompts) if number != prompt]
        self.prompts = [self.prompts[place] for place in stays]
        self.emitted = [self.emitted[place] for place in stays]
        self.generations = [self.generations[place] for place in stays]
        self.rows = {
            setting: [rows[place] for place in stays] for setting, rows in self.rows.items()
        }

    def sums(self, setting: Overrides) -> Floats:
        """[prompts, 5] float64: expected tokens, expected nats, cycles, emitted tokens of the
        lossless answer, and those of its first tokens that the prefill gave. No prompts of a
        setting that was refused."""
        sums: dict[int, Floats] = {}
        requests = zip(self.prompts, self.emitted, self.rows.get(setting, ()), strict=False)
        for prompt, emitted, row in requests:
            first = 1.0
            sums[prompt] = sums.get(prompt, np.zeros(5)) + np.array([*row, emitted, first])
        return np.array(list(sums.values())) if sums else np.empty((0, 5))


def decoded(
    rest: Sequence[str],
    settings: Sequence[Overrides],
    batch: int,
    record: Path | None = None,
    top: int = 0,
) -> Tally:
    """Decode the prompts of the point `rest` losslessly, so many together, and put every cycle
    before the rules. `record`: write what they saw to this file, with the `top` largest logits of a
    context, 0: all. Raises ModelError, TaskError."""
    tally, pool = Tally(), ModelPool()
    cell, lossless = open_cell([*rest, "rule=lossless"], pool)
    methods: dict[Overrides, Method] = {}
    for setting in settings:
        try:
            tally.cells[setting], methods[setting] = open_cell([*rest, *setting], pool)
        except (ConfigError, ModelError, ValueError) as error:
            tally.refused[setting] = one_line(error)
    host = screen.host(lossless, list(methods.values()))
    rules = {setting: method.rule for setting, method in methods.items()}
    recorders = [] if record is None else [Recorder(top)]
    task = cell.load_task()
    limits = limits_of(cell, lossless.target, task)
    prompts = task.prompts(cell.n, cell.seed)

    def stream(prompt: Prompt, turn: int) -> str:
        return stream_name(cell, task, prompt, turn)

    # without the turn, by which a stream's name ends
    numbers = {stream(prompt, 0).rpartition("/")[0]: i for i, prompt in enumerate(prompts)}

    def generate(requests: Sequence[Request], limits: Limits) -> list[Generation]:
        asked = [numbers[request.key.rpartition("/")[0]] for request in requests]
        for recorder in recorders:
            recorder.begin(requests, asked)
        generations, screens = screen.screened(host, rules, requests, limits, recorders)
        for recorder in recorders:
            recorder.end(generations)
        tally.add(asked, [len(generation.output_ids) for generation in generations], screens)
        tally.generations += generations
        return generations

    for start in range(0, len(prompts), batch):
        together = prompts[start : start + batch]
        answers = answer(NativeMethod(host), together, limits, stream, decode=generate)
        for number, (name, turns) in enumerate(answers.items(), start):
            if isinstance(turns, FailedSample):
                tally.fail(number, f"{name}: {turns.error}")
    if record is not None:
        described = description(cell, lossless)
        recorders[0].write(record, host.sampling, limits, tally.failed, **described)
    return tally


def description(cell: Cell, method: Method) -> dict[str, Any]:
    """What a file of contexts says of models and task."""
    roles = [role for role in cell.roles if role != "target"]
    return {
        "vocab": method.target.vocab_size,
        "target": portable(cell.pair.target.source),
        "draft": portable(cell.pair.checkpoint(roles[0]).source) if roles else None,
        "fingerprints": cell.fingerprints(),
        "task": cell.task.name,
        "code": code_digest(),
    }


def replayed(
    file: Path, hydra: Composer, rest: Sequence[str], settings: Sequence[Overrides]
) -> Tally:
    """Put the contexts of a file before the rules. Raises ContextsError."""
    contexts = Contexts(file)
    tally, said = Tally(source=contexts.origin), contexts.description
    drafts = DraftCapabilities(
        "recorded", contexts.has_q, said.sampled, chain=said.chain, distinct=not said.replacement
    )
    rules: dict[Overrides, Rule] = {}
    for setting in settings:
        try:
            config = hydra.point([*rest, *setting]).config
            rule = parse(registry.rule, config, "rule", registry.names("rules")).options
            rule.check(drafts, contexts.sampling)
            rules[setting] = contexts.bound(rule)
        except (ConfigError, ValueError) as error:
            tally.refused[setting] = one_line(error)
    tally.add(contexts.answers, contexts.emitted, contexts.screened(rules))
    return tally


def speeds(tally: Tally, profile: Profile) -> dict[Overrides, float]:
    """Seconds per token of plain decoding ÷ those of each setting, on the machine of a cost
    profile, without the prompt: its cycles' seconds over the tokens they are expected to emit. None
    for a setting whose rule or drafter the profile does not price."""
    speeds: dict[Overrides, float] = {}
    for setting, cell in tally.cells.items():
        try:
            clock, plain_clock = clocks_of(profile, cell)
            cycles = sum(
                float(clock.cycles(cast(Sample, generation)).sum())
                for generation in tally.generations
            )
        except StoreError:
            continue
        plain = float(plain_clock.cycles(cast(Sample, PLAIN_CYCLE)).sum())
        tokens = sum(float(row[0]) for row in tally.rows[setting])
        speeds[setting] = plain * tokens / cycles
    return speeds


def checked(
    hydra: Composer, rest: Sequence[str], settings: Sequence[Overrides]
) -> dict[Overrides, dict[str, float | None]]:
    """τ and D of the settings decoded by themselves, as `python -m bench` does it."""
    points = [hydra.point([*rest, *setting, "timed=0"]) for setting in settings]
    session = Session(points[0].settings)
    cells = [point.cell for point in points]
    session.check(cells)
    run(cells, session)
    session.print_failures(cells)
    values: dict[Overrides, dict[str, float | None]] = {}
    for setting, cell in zip(settings, cells, strict=True):
        summary = session.compared(cell)
        if summary is not None:
            values[setting] = {name: summary.value(name) for name in ("tau", "distortion")}
    return values
