"""The records of a prompt: what decoding it gave, or why it failed, without a clock
(samples.jsonl); its timings (timed.jsonl); both beside the autoregressive ones; and the scores of
an LLM judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from results.store.errors import StoreError, first_fault
from results.store.records import whole_lines

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OMITTED: dict[str, Any] = {"flags": {}, "group": None, "unscored": False, "distortion": None}
"""Fields that a line leaves out at these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the decode loop counts, field by field as in `methods.batch.Generation`, which explains
    them; all turns."""

    committed: list[int]
    accepted: list[int]
    nodes: list[int]
    levels: list[int]
    relaxed: int
    greedier: int
    drafted: int
    pruned: int
    flags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distortion:
    """How far the rule's law R of each emitted token is from the target's p, summed over the tokens
    of all turns, as `methods.batch.Divergence` explains; nats are None where they are infinite, and
    their places and counts in answers that were decoded before these were kept."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    basis: Literal["law", "draws", "theorem"]
    tokens: int
    nats: float | None
    tv: float
    js: float
    outside: float
    entropy: float
    logit: float
    log_mass: list[float]
    tv_at_1: float | None = None
    nats_at: list[float] | None = None
    nats_counts: list[int] | None = None
    nats_by_entropy: list[float] | None = None
    tokens_by_entropy: list[int] | None = None
    nats_largest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Counts):
    """One decoded prompt. Lists are one entry per turn, or per draft–verify cycle over all turns.

    id             the prompt's id, unique within its cell
    prompt_sha256  hash of what the task gives, as token ids (`bench.run.answer.prompt_sha256`)
    output_ids     emitted tokens, all turns, cut behind the end
    texts          the answer of each turn
    turn_tokens    emitted tokens of each turn
    finish         why each turn ended: "eos", "length", …
    score          the task's score in [0, 1]; None where the task has none
    answer         what the task extracted from the text
    details        the task's further scores, by name
    nll            −log p(token) under the raw target, nats, summed over the emitted tokens; None
                   where not computed
    prompt_tokens  tokens of the prompt, all turns
    group          the item that several samples answer; None where a sample is an item of its own
    unscored       the machine that decoded it could not score it; a later line gives the score
    distortion     how far the rule's law is from the target's; None where it is not known or was
                   not computed
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    prompt_sha256: str
    output_ids: list[int]
    texts: list[str]
    turn_tokens: list[int]
    finish: list[str]
    score: float | None
    answer: str | None
    details: dict[str, float]
    nll: float | None
    prompt_tokens: int
    group: str | None = None
    unscored: bool = False
    distortion: Distortion | None = None

    @property
    def item(self) -> str:
        """The item that this sample answers: samples of one item depend on one another."""
        return self.id if self.group is None else self.group


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A prompt that could not be decoded or scored, and the reason in one line."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    error: str


Record = Sample | FailedSample
_SAMPLE, _FAILED = TypeAdapter(Sample), TypeAdapter(FailedSample)


def changed_prompt(before: Sample, now: Sample) -> str:
    """How to say that two samples answer different prompts; empty where they do not."""
    if before.prompt_sha256 == now.prompt_sha256:
        return ""
    return another_prompt(now.id, before.prompt_sha256, now.prompt_sha256)


def another_prompt(prompt: str, before: str, now: str) -> str:
    """How to say that a prompt's id was given to two prompts, by their hashes."""
    return (
        f"prompt {prompt} is another one than before: SHA-256 {before[:16]}… then, {now[:16]}… now"
    )


def to_plain(record: Record) -> dict[str, Any]:
    """What a line of samples.jsonl holds, the prompt's id first."""
    plain = {"id": record.id, **asdict(record)}
    return {
        name: value
        for name, value in plain.items()
        if name not in OMITTED or value != OMITTED[name]
    }


def from_json(text: bytes) -> Record:
    """The record of a line's object. Raises ValueError, one line, for anything else."""
    try:
        return _SAMPLE.validate_json(text)
    except ValidationError as invalid:
        try:
            return _FAILED.validate_json(text)
        except ValidationError:
            raise ValueError(first_fault(invalid)) from None


def read_records(path: Path, content: bytes) -> list[Record]:
    """The records of a samples file with this content: one per prompt, in the order first written;
    a later line of a prompt replaces one that failed or has no score yet. Raises StoreError, naming
    file and line, for a whole line that is no record."""
    records: dict[str, Record] = {}
    for where, record in whole_lines(path, content, from_json, "sample"):
        before = records.get(record.id)
        if isinstance(before, Sample) and not before.unscored:
            raise StoreError(
                f"{where} repeats prompt {record.id!r}, which is already measured: remove the line"
            )
        records[record.id] = record
    return list(records.values())


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where the timed pass decoded another token than the quality pass.

    at       index of the first differing token, all turns
    margin   difference of the target's two largest raw logits in the context before it, float32
    between  probability, under the target, of the ids strictly between the two tokens; None at
             temperature 0 and where one answer ends
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    at: int
    margin: float
    between: float | None = None


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One timed answer.

    tokens     emitted tokens, all turns
    cycles     draft–verify cycles, all turns: forwards of the target after the prefill
    prefill_s  seconds of the prefill, all turns
    decode_s   seconds of decoding, prefill and tokenisation excluded; in a batch, the batch's
               divided by its rows
    parted     None where its tokens equal those of the quality pass
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    tokens: int
    cycles: int
    prefill_s: float
    decode_s: float
    parted: FirstDifference | None = None


@dataclass(frozen=True, slots=True, order=True)
class TimingSession:
    """One measuring session: clocks of different sessions do not compare.

    started  when it began, ISO 8601 in UTC
    host     the machine's name
    boot     the machine's boot, as the kernel names it: frequencies of one boot compare
    shared   whether other workers of a launcher may have run on the machine meanwhile
    threads  CPU threads of the process; 0 where that was not recorded
    """

    started: str
    host: str
    boot: str
    shared: bool = False
    threads: int = 0

    @property
    def text(self) -> str:
        """`2026-11-21 20:12 on HOST`, and whether it was shared."""
        text = f"{self.started[:16].replace('T', ' ')} on {self.host}"
        return f"{text}, shared with other workers" if self.shared else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(TimingSession):
    """One prompt of the timed pass, in its measuring session.

    id        the prompt's id
    own       the cell's own run
    baseline  the autoregressive run of the same group; None in the autoregressive cell
    batch     id of the first prompt of the batch that it was timed in; None where it was timed
              alone
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    own: TimedRun
    baseline: TimedRun | None
    batch: str | None = None

    @property
    def session(self) -> TimingSession:
        """The measuring session."""
        return TimingSession(self.started, self.host, self.boot, self.shared, self.threads)

    @property
    def runs(self) -> tuple[TimedRun, TimedRun]:
        """The cell's run and the baseline's; in the autoregressive cell both are its own."""
        return self.own, self.own if self.baseline is None else self.baseline


def is_rated(row: Timed) -> bool:
    """Whether both took a cycle on a timed prompt."""
    return all(run.cycles and run.decode_s > 0 for run in row.runs)


_TIMED = TypeAdapter(Timed)


def timing_order(ids: Iterable[str]) -> list[str]:
    """Prompts in the order in which they are timed: by the SHA-256 of their ids, so that the first
    few are a random sample, the same one for every method. The first prompts of a task may be
    unlike the rest."""
    return sorted(ids, key=lambda name: sha256(name.encode()).digest())


def batches(rows: Iterable[Timed]) -> list[list[Timed]]:
    """The rows that were timed at once: their seconds are shares of one time, so that they are one
    observation."""
    together: dict[tuple[str, str], list[Timed]] = {}
    for row in rows:
        together.setdefault((row.started, row.batch or row.id), []).append(row)
    return list(together.values())


def read_timed(path: Path, content: bytes) -> list[Timed]:
    """The records of a timed.jsonl with this content, one per prompt: a later line of a prompt
    replaces an earlier one. Raises StoreError, naming file and line, for a whole line that is no
    record."""
    rows = {timed.id: timed for _, timed in whole_lines(path, content, _parse, "timed prompt")}
    return list(rows.values())


def _parse(text: bytes) -> Timed:
    try:
        return _TIMED.validate_json(text)
    except ValidationError as invalid:
        raise ValueError(first_fault(invalid)) from None


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt that was answered by a cell and by its autoregressive baseline.

    sample    the cell's answer
    baseline  the baseline's; in an autoregressive cell the same object as `sample`
    timed     what the clock said of both; None for a prompt that was not timed
    """

    sample: Sample
    baseline: Sample
    timed: Timed | None = None

    @property
    def id(self) -> str:
        """The prompt's id, unique within its cell."""
        return self.sample.id


def compare(
    records: Iterable[Record], baselines: Mapping[str, Record], timed: Mapping[str, Timed]
) -> list[Compared | FailedSample]:
    """One entry for each record whose prompt the baseline has tried too; `baselines` and `timed`:
    prompt id -> record. A prompt that failed in either cell has failed, and so has one that is not
    the same in both."""
    compared: list[Compared | FailedSample] = []
    for record in records:
        baseline = baselines.get(record.id)
        if isinstance(record, FailedSample):
            compared.append(record)
        elif isinstance(baseline, FailedSample):
            compared.append(FailedSample(record.id, f"baseline: {baseline.error}"))
        elif baseline is not None and (reason := changed_prompt(baseline, record)):
            compared.append(
                FailedSample(record.id, f"baseline: {reason}; remove the cell that is older")
            )
        elif baseline is not None:
            compared.append(Compared(record, baseline, timed.get(record.id)))
    return compared


Opponent = Literal["reference", "baseline"]
"""What an LLM judge compares an answer with: the answer in the data, or that of autoregressive
decoding."""


class JudgeSummary(BaseModel):
    """Scores of an LLM judge for one cell: mode "single" grades each answer, "pairwise" compares it
    with another one.

    score        single: mean grade over all turns, 1 to 10; `turn_1`, `turn_2`, … are those of each
                 turn
    win_rate     pairwise: share of prompts won, a tie counting half
    win_first    pairwise: the same where the judged answer stands first, and
    win_second   where it stands second
    ci95         95% interval over prompts of the score or of the win rate
    n            prompts that count
    left_out     pairwise: prompts without a verdict in both orders
    penalised    single: grades replaced by their square root, the answer being in a wrong language
    unpenalised  single: the score without that
    replies      replies of the judge
    unread       replies without a verdict
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]
    model: str
    mode: str
    score: float | None = None
    win_rate: float | None = None
    win_first: float | None = None
    win_second: float | None = None
    ci95: tuple[float, float] | None = None
    n: int
    left_out: int = 0
    penalised: int = 0
    unpenalised: float | None = None
    replies: int
    unread: int

    @property
    def turns(self) -> dict[str, float]:
        """The scores of the turns, by their name, in order."""
        return dict(self.__pydantic_extra__ or {})

    def metrics(self) -> dict[str, float | tuple[float, float] | None]:
        """The score, or the win rate, under its name in a `Summary`, with its interval."""
        if self.mode == "pairwise":
            return {"win_rate": self.win_rate, "win_rate_ci95": self.ci95}
        return {"judge_score": self.score, "judge_score_ci95": self.ci95}

    @property
    def told(self) -> str:
        """Who judged what, in a few words."""
        parts = [
            f"judged by {self.model}: {self.n} prompt{'' if self.n == 1 else 's'}",
            *(f"{turn.replace('_', ' ')} {score:.2f}" for turn, score in self.turns.items()),
        ]
        if self.penalised and self.unpenalised is not None:
            parts.append(
                f"{self.penalised} of {self.replies} grades penalised as not Korean "
                f"({self.unpenalised:.2f} without)"
            )
        if self.win_first is not None and self.win_second is not None:
            parts.append(
                f"{self.win_first:.1%} won where its answer stood first, {self.win_second:.1%} "
                "where second"
            )
        if self.left_out:
            parts.append(f"{self.left_out} left out, without a verdict in both orders")
        if self.unread:
            parts.append(f"{self.unread} of {self.replies} replies without a verdict")
        return ", ".join(parts)
