"""The records of samples.jsonl: what the decoding of one prompt gave, or why it failed. No clock is in them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from results.store.errors import StoreError, first_fault
from results.store.lines import whole_lines

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
OMITTED: dict[str, Any] = {"flags": {}, "group": None}
"""Fields that a line leaves out at these values."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoded prompt. Lists are one entry per turn, or per draft–verify cycle over all turns.

    id             the prompt's id, unique within its cell
    output_ids     emitted tokens, all turns, cut behind the end
    text           the answers of all turns, separated by an empty line
    texts          the answer of each turn
    turn_tokens    emitted tokens of each turn
    committed      tokens committed in each cycle, the correction or bonus token included
    accepted       draft tokens accepted in each cycle
    relaxed        emitted draft tokens that the lossless test rejects with the same random numbers and that are not the
                   target's argmax
    greedier       emitted draft tokens that the lossless test rejects although they are the target's argmax
    drafted        tokens proposed where the draft is pruned, else 0
    pruned         drafted tokens dropped before verification
    finish         why each turn ended: "eos", "length", …
    score          the task's score in [0, 1]; None where the task has none
    answer         what the task extracted from the text
    details        the task's further scores, by name
    seed           the seed of the cell
    nll            −log p(token) under the raw target, nats, summed over the emitted tokens; None where not computed
    prompt_tokens  tokens of the prompt, all turns
    flags          how often each flag of the rule was set on an emitted token
    group          the item that several samples answer; None where a sample is an item of its own
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    id: str
    output_ids: list[int]
    text: str
    texts: list[str]
    turn_tokens: list[int]
    committed: list[int]
    accepted: list[int]
    relaxed: int
    greedier: int
    drafted: int
    pruned: int
    finish: list[str]
    score: float | None
    answer: str | None
    details: dict[str, float]
    seed: int
    nll: float | None
    prompt_tokens: int
    flags: dict[str, int] = field(default_factory=dict)
    group: str | None = None

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


def to_plain(record: Record) -> dict[str, Any]:
    """What a line of samples.jsonl holds."""
    return {name: value for name, value in asdict(record).items() if name not in OMITTED or value != OMITTED[name]}


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
    """The records of a samples file with this content: one per prompt, in the order first written; a later line of a
    prompt replaces a failed one. Raises StoreError, naming file and line, for a whole line that is no record."""
    records: dict[str, Record] = {}
    for where, record in whole_lines(path, content, from_json, "sample"):
        if isinstance(records.get(record.id), Sample):
            raise StoreError(f"{where} repeats prompt {record.id!r}, which is already measured: remove the line")
        records[record.id] = record
    return list(records.values())
