"""The timed pass: cells that differ only in their method run in rotation over the same prompts, beside one baseline.

For each prompt (or batch of prompts) the autoregressive baseline runs once, then every cell that still lacks the
prompt, in an order that rotates from prompt to prompt: drift of the machine hits all of them alike. What the machine
stalls is timed again at once (`bench.run.timed_pass.stalls`). A row is on disk before the next method starts, and
carries the baseline it was timed beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from bench.run.answer import Answer, PromptChanged, answer, check_prompts, limits_of, stream_name
from bench.run.progress import Bar, Bars, display_names
from bench.run.requested_cell import PROFILE
from bench.run.threads import use_threads
from bench.run.timed_pass.profiling import PROMPTS, profiles
from bench.run.timed_pass.same_tokens import NotRepeatable, check_share, first_difference
from bench.run.timed_pass.stalls import Attempt, StallWatch
from results.store.timed import FirstDifference, Stalled, Timed, TimedRun, timing_order

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.schema import Pair
    from bench.run.engine import Engine, LoadedMethod
    from bench.run.locks import Claim
    from bench.run.timed_pass.machine_lock import Stamp
    from results.store.cells import CellFolder, Store
    from results.store.sample import Sample
    from tasks.base import Prompt


class TimedPassError(RuntimeError):
    """A prompt of the quality pass that the timed pass could not decode. The message is one line."""


@dataclass(slots=True)
class MethodRun:
    """One cell of a rotation while it runs.

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


def rotations(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Group cells that can share prompts and baseline, in the order of their first cell, those of one pair together, so
    that its models are loaded once."""
    groups: dict[str, list[Claim]] = {}
    pairs: dict[Pair, int] = {}
    for claim in claims:
        groups.setdefault(claim.cell.rotation_key, []).append(claim)
        pairs.setdefault(claim.cell.pair, len(pairs))
    return sorted(groups.values(), key=lambda group: pairs[group[0].cell.pair])


def untimed(claim: Claim, baseline: CellFolder) -> list[str]:
    """Ids of the prompts that the cell asks to be timed and that are not; of the prompts that both the cell and its
    baseline have answered, the first ones of `timing_order` in whole batches. Raises StoreError, TaskError."""
    cell, good = claim.cell, {sample.id for sample in claim.folder.good_samples()}
    good &= {sample.id for sample in baseline.good_samples()}
    ids = timing_order(prompt.id for prompt in cell.load_task().prompts(cell.n, cell.seed) if prompt.id in good)
    done = {row.id for row in claim.folder.timed()}
    return [prompt for prompt in ids[:claim.timed_prompts] if prompt not in done]


def needs_clock(claim: Claim, baseline: CellFolder) -> bool:
    """Whether prompts of the cell are to be timed, or a kill came between the last of them and its profile. Raises
    StoreError, TaskError."""
    if not claim.timed_prompts:
        return False
    return bool(untimed(claim, baseline)) or (bool(claim.folder.timed()) and claim.folder.record(PROFILE) is None)


def time_rotation(claims: Sequence[Claim], store: Store, engine: Engine, stamp: Stamp) -> None:
    """Time what is missing of the cells of one rotation. What goes wrong is recorded in their folders, not raised."""
    first = claims[0].cell
    try:
        engine.keep_only([claim.cell for claim in claims])
        stamp = replace(stamp, threads=use_threads(first.engine))
        baseline, folder = engine.load(first.baseline()), store.cell(first.baseline().name)
        alone = [claim.folder for claim in claims if claim.cell.is_autoregressive]  # of batches of another size
        expected = {sample.id: sample for own in [*alone, folder] for sample in own.good_samples()}
    except Exception as error:  # nothing of this rotation can run: every cell says why
        for claim in claims:
            claim.fail(error)
        return
    entries = []
    for claim in claims:
        try:
            wanted = set(untimed(claim, claim.folder if claim.cell.is_autoregressive else folder))
            method = baseline if claim.cell.is_autoregressive else engine.load(claim.cell)
            samples = {sample.id: sample for sample in claim.folder.good_samples()}
        except Exception as error:  # this cell alone cannot run
            claim.fail(error)
            continue
        entries.append(MethodRun(claim, method, samples, wanted))
    try:
        if entries:
            Rotation(entries, baseline, expected, stamp).run()
    except Exception as error:  # nothing that one cell did: a full disk, or a baseline that cannot be timed
        for entry in entries:
            entry.claim.fail(error)


class Rotation:
    """Times the methods over the prompts that at least one of them lacks."""

    def __init__(self, entries: list[MethodRun], baseline: LoadedMethod, expected: dict[str, Sample],
                 stamp: Stamp) -> None:
        self.entries, self.baseline, self.expected, self.stamp = entries, baseline, expected, stamp
        self.cell = max((entry.cell for entry in entries), key=lambda cell: float("inf") if cell.n is None else cell.n)
        self.task = self.cell.load_task()
        self.limits = limits_of(self.cell, baseline.target, self.task)
        wanted = {prompt for entry in entries for prompt in entry.wanted}
        timed = {row.id for entry in entries for row in entry.claim.folder.timed()}
        self.rows: dict[str, Bar] = {}
        found = {prompt.id: prompt for prompt in self.task.prompts(self.cell.n, self.cell.seed)}
        asked = [found[name] for name in timing_order(found)]
        prompts = [prompt for prompt in asked if prompt.id in wanted]
        self.chunks = [prompts[i:i + self.cell.batch] for i in range(0, len(prompts), self.cell.batch)]
        self.profiled = (prompts or [prompt for prompt in asked if prompt.id in timed])[:PROMPTS]
        runs = len(self.chunks) * (1 + sum(not entry.cell.is_autoregressive for entry in entries))
        self.watch = StallWatch(runs, judges=baseline.judges_stalls)

    def run(self) -> None:
        if not self.profiled:
            return
        self._warm_up([*self.chunks, self.profiled][0])
        with Bars("timed pass", sum(len(entry.wanted) for entry in self.entries)) as bars:
            names = display_names([entry.cell for entry in self.entries])
            self.rows = {entry.cell.name: bars.row(name, len(entry.wanted))
                         for entry, name in zip(self.entries, names, strict=True)}
            for index, chunk in enumerate(self.chunks):
                if entries := self._pending(chunk):
                    self._measure(chunk, entries[index % len(entries):] + entries[:index % len(entries)])
        self._check_and_profile()

    def _check_and_profile(self) -> None:
        """Check how many prompts differ, and record the phases of a cycle, of the baseline and of every method, on the
        first prompts that were timed, and what the baseline reads."""
        methods = [entry.method for entry in self.entries if not entry.cell.is_autoregressive]
        base, *others = profiles([self.baseline, *methods], self.profiled, self.limits, self._stream)
        phases, machine = iter(others), f"{self.stamp.host}, {self.stamp.boot}"
        bytes_read = self.baseline.reads(self.cell.batch, machine)
        for entry in self.entries:
            own = base if entry.cell.is_autoregressive else next(phases)
            entry.claim.folder.write_record(PROFILE, {
                "own": own and own.phases, "prompts": own and own.prompts, "baseline": base and base.phases,
                "reads": bytes_read})
            try:
                check_share(entry.cell, entry.claim.folder.timed())
            except NotRepeatable as error:
                entry.claim.fail(str(error))

    def _pending(self, chunk: list[Prompt]) -> list[MethodRun]:
        return [entry for entry in self.entries if any(prompt.id in entry.wanted for prompt in chunk)]

    def _warm_up(self, chunk: list[Prompt]) -> None:
        """One untimed turn of every method: first calls allocate, compile and fill caches."""
        for method in [self.baseline, *(entry.method for entry in self.entries)]:
            answer(method, chunk, self.limits, self._stream, turns=1)

    def _measure(self, chunk: list[Prompt], entries: list[MethodRun]) -> None:
        base = self._ask(self.baseline, self.cell.baseline(), chunk, self.expected)
        for entry in entries:
            alone = entry.cell.is_autoregressive
            try:
                runs = base if alone else self._ask(entry.method, entry.cell, chunk, entry.samples)
                for prompt, (run, own) in runs.items():
                    if prompt in entry.wanted:
                        other = None if alone else base[prompt][1]
                        timed = Timed(prompt, own, other, **asdict(self.stamp),
                                      batch=chunk[0].id if len(chunk) > 1 else None)
                        entry.claim.folder.append_timed(timed)
                        self.rows[entry.cell.name].advance(1, run.generations, run.decode_s)
            except (TimedPassError, NotRepeatable, PromptChanged) as error:  # of this cell alone
                entry.claim.fail(str(error))
                self.entries.remove(entry)

    def _ask(self, method: LoadedMethod, cell: Cell, chunk: list[Prompt],
             expected: dict[str, Sample]) -> dict[str, tuple[Answer, TimedRun]]:
        """Prompt id -> the answer and what the clock said of it, for the prompts that the quality pass could answer.
        Raises TimedPassError, NotRepeatable, PromptChanged."""
        answers, known = {}, [prompt for prompt in chunk if prompt.id in expected]
        check_prompts(method.target, [(prompt, before) for prompt in known
                                      if (before := expected[prompt.id].prompt_sha256)])
        attempts = self.watch.attempts(cell.name, lambda: answer(method, known, self.limits, self._stream))
        for row, run in enumerate(attempts[-1].result):
            if run.error is not None:
                raise TimedPassError(f"task={cell.task.name}, prompt {run.prompt.id}: cannot be timed: {run.error}; "
                                     "run the command again, with a smaller batch if memory was short")
            difference = first_difference(method, cell, run, expected[run.prompt.id])
            answers[run.prompt.id] = run, timed_run(attempts, row, difference)
        return answers

    def _stream(self, prompt: Prompt, turn: int) -> str:
        return stream_name(self.cell, self.task, prompt, turn)


def timed_run(attempts: Sequence[Attempt[list[Answer]]], row: int, parted: FirstDifference | None) -> TimedRun:
    """What the clock said of one row of a batch: the last attempt, and those before it that the machine stalled."""
    *before, last = attempts
    run, share = last.result[row], 1 / len(last.result)
    stalled = tuple(Stalled(one.result[row].prefill_s, one.result[row].decode_s, one.spent.wall_s * share,
                            one.spent.cpu_s * share) for one in before if one.spent.cpu_s is not None)
    cpu_s = None if last.spent.cpu_s is None else last.spent.cpu_s * share
    return TimedRun(len(run.output_ids), len(run.counts.committed), run.prefill_s, run.decode_s, parted,
                    last.spent.wall_s * share, cpu_s, last.stalled, stalled)
