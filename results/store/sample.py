"""The records of samples.jsonl: what the decoding of one prompt gave, or why it failed. No clock is in them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from results.store.errors import StoreError, first_fault
from results.store.records import whole_lines

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OMITTED: dict[str, Any] = {"flags": {}, "group": None, "unscored": False, "distortion": None}
"""Fields that a line leaves out at these values."""
TREES = ("nodes", "levels")
"""Counts that lines of schema 1 do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the decode loop counts, field by field as in `methods.batch.Generation`, which explains them; all turns."""

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
    """How far the rule's law R of each emitted token is from the target's p, summed over the tokens of all turns, as
    `methods.batch.Divergence` explains; `nats` is None where it is infinite."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Counts):
    """One decoded prompt. Lists are one entry per turn, or per draft–verify cycle over all turns.

    id             the prompt's id, unique within its cell
    prompt_sha256  hash of what the task gives, as token ids (`bench.run.answer.prompt_sha256`); None in a line of
                   schema 1
    output_ids     emitted tokens, all turns, cut behind the end
    texts          the answer of each turn
    turn_tokens    emitted tokens of each turn
    finish         why each turn ended: "eos", "length", …
    score          the task's score in [0, 1]; None where the task has none
    answer         what the task extracted from the text
    details        the task's further scores, by name
    nll            −log p(token) under the raw target, nats, summed over the emitted tokens; None where not computed
    prompt_tokens  tokens of the prompt, all turns
    group          the item that several samples answer; None where a sample is an item of its own
    unscored       the machine that decoded it could not score it; a later line gives the score
    distortion     how far the rule's law is from the target's; None where it is not known or was not computed

    A line of schema 1 does not say what each cycle's tree held: `nodes` and `levels` are then empty.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    prompt_sha256: str | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema1(Sample):
    """A line of schema 1, which also held the joined texts and the cell's seed."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    prompt_sha256: str | None = None
    nodes: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    text: str
    seed: int


Record = Sample | FailedSample
_SAMPLE, _SCHEMA_1, _FAILED = TypeAdapter(Sample), TypeAdapter(_Schema1), TypeAdapter(FailedSample)


def hashes_differ(one: Sample, other: Sample) -> bool:
    """Whether two samples answer different prompts, as far as their hashes are known."""
    return None not in (one.prompt_sha256, other.prompt_sha256) and one.prompt_sha256 != other.prompt_sha256


def another_prompt(prompt: str, before: str, now: str) -> str:
    """How to say that a prompt's id was given to two prompts, by their hashes."""
    return f"prompt {prompt} is another one than before: SHA-256 {before[:16]}… then, {now[:16]}… now"


def to_plain(record: Record) -> dict[str, Any]:
    """What a line of samples.jsonl holds, the prompt's id first."""
    plain = {"id": record.id, **asdict(record)}
    return {name: value for name, value in plain.items() if name not in OMITTED or value != OMITTED[name]}


def from_json(text: bytes) -> Record:
    """The record of a line's object. Raises ValueError, one line, for anything else."""
    try:
        return _SAMPLE.validate_json(text)
    except ValidationError as invalid:
        for older in (_SCHEMA_1, _FAILED):
            try:
                record = older.validate_json(text)
            except ValidationError:
                continue
            return record if isinstance(record, FailedSample) else Sample(
                **{one.name: getattr(record, one.name) for one in fields(Sample)})
        raise ValueError(first_fault(invalid)) from None


def read_records(path: Path, content: bytes) -> list[Record]:
    """The records of a samples file with this content: one per prompt, in the order first written; a later line of a
    prompt replaces one that failed or has no score yet. Raises StoreError, naming file and line, for a whole line that
    is no record."""
    records: dict[str, Record] = {}
    for where, record in whole_lines(path, content, from_json, "sample"):
        before = records.get(record.id)
        if isinstance(before, Sample) and not before.unscored:
            raise StoreError(f"{where} repeats prompt {record.id!r}, which is already measured: remove the line")
        records[record.id] = record
    return list(records.values())
