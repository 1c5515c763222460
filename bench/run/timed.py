"""The timed pass: cells that differ only in their method run in rotation over the same prompts,
beside one baseline.

For each prompt (or batch of prompts) the autoregressive baseline and every cell that still lacks
the prompt run once, in an order that rotates from prompt to prompt: drift of the machine hits all
of them alike. A row holds its own times and those of the baseline that ran with it. It is written
to disk as soon as both have run, before the next method starts. Its tokens must be those of the
quality pass, but for rounding (`first_difference`).

With several sessions a process times the next part of the prompts and ends
(`Session.begin_another`): what a process start, a memory layout or the hour does to a speed shows
only between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from bench.run.answer import PromptChanged, answer, check_prompts, context, limits_of, stream_name
from bench.run.claims import Claim, Passes, by_group, prompts_asked
from bench.run.console import Bar, ProgressBars, console, counted, display_names
from bench.run.locks import machine, timing_session
from bench.run.models import use_threads
from bench.run.profiling import PROMPTS, profiles
from methods.batch import Generation, total
from methods.engine.margin import mass_between, top2_margin
from methods.sampling import Sampling
from results.store.sample import FailedSample, FirstDifference, Timed, TimedRun, timing_order
from results.store.state import PROFILE

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import DecodingEngine, LoadedMethod
    from methods.engine.language_model import LanguageModel
    from results.store.sample import Sample, TimingSession
    from tasks.base import Prompt

NEAR_TIE = 1e-4
"""Logits of a model in float32 differ by less between batches of other sizes."""
LOSSLESS = ("lossless", "greedy")


class TimedPassError(RuntimeError):
    """A prompt of the quality pass that the timed pass could not decode. The message is one
    line."""


@dataclass(slots=True)
class MethodRun:
    """One cell of a group while it runs.

    claim    the locked cell.
    samples  id -> what the quality pass decoded.
    wanted   ids of the prompts that are to be timed and are not.
    """

    claim: Claim
    method: LoadedMethod
    samples: dict[str, Sample]
    wanted: set[str]

    @property
    def cell(self) -> Cell:
        return self.claim.cell


def timed_pass(claims: Sequence[Claim], passes: Passes, engine: DecodingEngine) -> None:
    """Time what is to be timed of these cells, group after group."""
    due: dict[str, Claim] = {}
    for claim in claims:
        if claim.todo.failure is None and (claim.todo.time or claim.todo.profile):
            due[claim.cell.name] = claim
    groups = by_group(claim.cell for claim in due.values())
    if not groups:
        return
    with machine(alone=not passes.shared):
        session = timing_session(passes.shared)
        for number, group in enumerate(groups, start=1):
            if len(groups) > 1:
                console().print(
                    f"timed pass, {number} of {len(groups)}: {title(group)}", highlight=False
                )
            # the clock's machine may be another one than that of the answers
            started = [due[cell.name] for cell in group if due[cell.name].start()]
            if started:
                time_group(started, engine, session)


def title(cells: Sequence[Cell]) -> str:
    """A group in words: `tiny, mini_gsm, temperature 0, 3 points`."""
    first, points = cells[0], counted(len(cells), "point")
    temperature = first.decoding.temperature
    return f"{first.pair.name}, {first.task.name}, temperature {temperature:g}, {points}"


def time_group(claims: Sequence[Claim], engine: DecodingEngine, session: TimingSession) -> None:
    """Time what is due of the cells of one group. What goes wrong is recorded in their folders, not
    raised."""
    first = claims[0].cell
    try:
        engine.keep_only([claim.cell for claim in claims])
        session = replace(session, threads=use_threads(first.engine))
        baseline = engine.load(first.baseline())
        expected: dict[str, Sample] = {}
        for claim in claims:
            if claim.cell.is_autoregressive:  # of batches of another size
                expected |= claim.folder.by_id()
        expected |= claims[0].baseline.by_id()
    except Exception as error:  # nothing of this group can run: every cell says why
        for claim in claims:
            claim.fail(error)
        return
    entries = []
    for claim in claims:
        try:
            method = baseline if claim.cell.is_autoregressive else engine.load(claim.cell)
            samples = claim.folder.by_id()
            wanted = set(claim.todo.time) & samples.keys() & expected.keys()
            entries.append(MethodRun(claim, method, samples, wanted))
        except Exception as error:  # this cell alone cannot run
            claim.fail(error)
    try:
        if entries:
            Rotation(entries, baseline, expected, session).run()
    # nothing that one cell did: a full disk, or a baseline that cannot be timed
    except Exception as error:
        for entry in entries:
            entry.claim.fail(error)


class Rotation:
    """Times the methods over the prompts that at least one of them lacks."""

    def __init__(
        self,
        entries: list[MethodRun],
        baseline: LoadedMethod,
        expected: dict[str, Sample],
        session: TimingSession,
    ) -> None:
        self.entries, self.baseline = entries, baseline
        self.expected, self.session = expected, session
        self.cell = max((entry.cell for entry in entries), key=prompts_asked)
        self.task = self.cell.load_task()
        self.limits = limits_of(self.cell, baseline.target, self.task)
        wanted = {prompt for entry in entries for prompt in entry.wanted}
        timed = {row.id for entry in entries for row in entry.claim.folder.timed()}
        self.rows: dict[str, Bar] = {}
        by_id = {prompt.id: prompt for prompt in self.cell.prompts()}
        asked = [by_id[name] for name in timing_order(by_id)]
        prompts = [prompt for prompt in asked if prompt.id in wanted]
        batch = self.cell.batch
        self.chunks = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
        self.profiled = (prompts or [prompt for prompt in asked if prompt.id in timed])[:PROMPTS]

    def run(self) -> None:
        if not self.profiled:
            return
        # first calls allocate and compile
        for method in [self.baseline, *(entry.method for entry in self.entries)]:
            answer(method, [*self.chunks, self.profiled][0], self.limits, self._stream, turns=1)
        with ProgressBars("timed pass", sum(len(entry.wanted) for entry in self.entries)) as bars:
            names = display_names([entry.cell for entry in self.entries])
            self.rows = {
                entry.cell.name: bars.row(name, len(entry.wanted))
                for entry, name in zip(self.entries, names, strict=True)
            }
            for index, chunk in enumerate(self.chunks):
                ids = {prompt.id for prompt in chunk}
                if entries := [entry for entry in self.entries if entry.wanted & ids]:
                    order = [None, *entries]
                    self._measure(chunk, order[index % len(order) :] + order[: index % len(order)])
        self._profile()

    def _profile(self) -> None:
        """Record the phases of a cycle of every method on the first prompts that were timed."""
        methods = [entry.method for entry in self.entries]
        of_methods = profiles(methods, self.profiled, self.limits, self._stream)
        for entry, profile in zip(self.entries, of_methods, strict=True):
            entry.claim.folder.write_record(
                PROFILE, {"own": profile and profile.phases, "prompts": profile and profile.prompts}
            )

    def _measure(self, chunk: list[Prompt], order: Sequence[MethodRun | None]) -> None:
        """Time these methods in this order; None is the baseline, whose run an autoregressive cell
        shares."""
        base: dict[str, tuple[Generation, TimedRun]] = {}
        waiting = [entry for entry in order if entry is not None and entry.cell.is_autoregressive]
        ran: dict[str, dict[str, tuple[Generation, TimedRun]]] = {}
        for entry in order:
            if entry is None:
                base = self._ask(self.baseline, self.cell.baseline(), chunk, self.expected)
                ran |= {alone.cell.name: base for alone in waiting if alone.cell.is_autoregressive}
            elif not entry.cell.is_autoregressive:
                try:
                    ran[entry.cell.name] = self._ask(entry.method, entry.cell, chunk, entry.samples)
                    waiting.append(entry)
                # of this cell alone
                except (TimedPassError, NotRepeatable, PromptChanged) as error:
                    entry.claim.fail(str(error))
                    self.entries.remove(entry)
            while base and waiting:
                done = waiting.pop()
                self._store(done, chunk, ran[done.cell.name], base)

    def _store(
        self,
        entry: MethodRun,
        chunk: list[Prompt],
        runs: Mapping[str, tuple[Generation, TimedRun]],
        base: Mapping[str, tuple[Generation, TimedRun]],
    ) -> None:
        batch = chunk[0].id if len(chunk) > 1 else None
        for prompt, (generation, clocked) in runs.items():
            if prompt in entry.wanted:
                beside = None if entry.cell.is_autoregressive else base[prompt][1]
                row = Timed(
                    **asdict(self.session), id=prompt, own=clocked, baseline=beside, batch=batch
                )
                entry.claim.folder.append_timed(row)
                self.rows[entry.cell.name].advance(1, [generation], generation.decode_s)

    def _ask(
        self, method: LoadedMethod, cell: Cell, chunk: list[Prompt], expected: dict[str, Sample]
    ) -> dict[str, tuple[Generation, TimedRun]]:
        """Prompt id -> the answer and what the clock said of it, for the prompts that the quality
        pass could answer. Raises TimedPassError, NotRepeatable, PromptChanged."""
        answerable = [prompt for prompt in chunk if prompt.id in expected]
        hashes = [expected[prompt.id].prompt_sha256 for prompt in answerable]
        check_prompts(method.target, zip(answerable, hashes, strict=True))
        answers = answer(method, answerable, self.limits, self._stream)
        timed = {}
        for prompt in answerable:
            turns = answers[prompt.id]
            if isinstance(turns, FailedSample):
                raise TimedPassError(
                    f"task={cell.task.name}, prompt {prompt.id}: cannot be timed: {turns.error}; "
                    "run the command again, with a smaller batch if memory was short"
                )
            whole = total(turns)
            difference = first_difference(
                method, cell, prompt, whole.output_ids, expected[prompt.id]
            )
            tokens, cycles = len(whole.output_ids), len(whole.committed)
            clocked = TimedRun(tokens, cycles, whole.prefill_s, whole.decode_s, difference)
            timed[prompt.id] = whole, clocked
        return timed

    def _stream(self, prompt: Prompt, turn: int) -> str:
        return stream_name(self.cell, self.task, prompt, turn)


class NotRepeatable(RuntimeError):
    """The two passes decoded what rounding cannot explain. The message is one line and names the
    prompt."""


def first_difference(
    method: LoadedMethod, cell: Cell, prompt: Prompt, ids: list[int], sample: Sample
) -> FirstDifference | None:
    """Where the tokens `ids` of the timed answer leave the sample of the quality pass; None where
    they do not.

    Raises NotRepeatable in float32 if rounding does not explain it and nothing else decides a
    token: under a lossless rule at temperature 0, and in plain sampling."""
    if ids == sample.output_ids:
        return None
    pairs = enumerate(zip_longest(ids, sample.output_ids))
    at, (timed, stored) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    logits = method.next_logits(before(method.target, prompt, sample, at))
    sampling = cell.decoding.sampling
    drawn = not sampling.greedy and timed is not None and stored is not None
    between = mass_between(sampling.probs(logits), timed, stored) if drawn else None
    difference = FirstDifference(at, top2_margin(logits), between)
    distance, explained = difference.margin, NEAR_TIE
    reason = f"the two largest logits are {distance:.2g} apart"
    if between is not None:  # a random number at a boundary between the two tokens (`mass_between`)
        distance, explained = between, NEAR_TIE / min(1.0, 2 * sampling.temperature)
        reason = f"a probability of {distance:.2g} lies between the two tokens"
    if (
        distance >= explained
        and cell.engine.dtype == "float32"
        and _is_exact(cell)
        and cell.engine.repeats(cell)
    ):
        raise NotRepeatable(
            f"{sample.id}: the timed pass differs from the quality pass at token {at}, where "
            f"{reason} (rounding explains {explained:g}): models or kernels have changed since; "
            f"remove the folder {cell.name} from the store to measure it again"
        )
    return difference


def _is_exact(cell: Cell) -> bool:
    """Whether nothing but the target's logits and one random number decide each token of the cell:
    no threshold, no acceptance test, no filter whose edge rounding moves."""
    sampling = cell.decoding.sampling
    if sampling.greedy:
        return cell.rule.name in LOSSLESS
    return cell.is_autoregressive and sampling == Sampling(sampling.temperature)


def before(target: LanguageModel, prompt: Prompt, sample: Sample, at: int) -> list[int]:
    """The context of token `at` of the sample."""
    turn, start = 0, 0
    while turn + 1 < len(sample.turn_tokens) and at >= start + sample.turn_tokens[turn]:
        start += sample.turn_tokens[turn]
        turn += 1
    return [*context(target, prompt, sample.texts[:turn]), *sample.output_ids[start:at]]
