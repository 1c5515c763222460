"""How two measurements of one cell differ, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

from results.store.sample import TREES, Record, Sample, another_prompt, hashes_differ

NATS = 1e-3
"""Relative tolerance of likelihoods: batches and processors differ in how they round sums."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Two measurements of one cell.

    common     prompts that both answered
    unhashed   those of them of which at least one does not know its prompt's hash
    prompts    prompt id -> how its hashes differ
    tokens     prompt id -> index of the first token that differs, all turns
    others     prompt id -> the first field that differs, for equal tokens
    """

    common: int
    unhashed: int
    prompts: dict[str, str]
    tokens: dict[str, int]
    others: dict[str, str]

    @property
    def first(self) -> str:
        """The first differing prompt, in one line; empty where all are equal."""
        if self.prompts:
            return f"{len(self.prompts)} of {self.common} prompts differ, first {next(iter(self.prompts.values()))}"
        if self.tokens:
            prompt, at = next(iter(self.tokens.items()))
            return f"{len(self.tokens)} of {self.common} prompts differ in their tokens, first {prompt} at token {at}"
        if self.others:
            prompt, field = next(iter(self.others.items()))
            return f"{len(self.others)} of {self.common} prompts differ, first {prompt} in {field}"
        return ""


def differences(own: Iterable[Record], other: Iterable[Record]) -> Differences:
    """Compare the prompts that both answered, in the order of `own`; those that failed in either are left out."""
    answered = {record.id: record for record in other if isinstance(record, Sample)}
    pairs = [(record, answered[record.id]) for record in own if isinstance(record, Sample) and record.id in answered]
    prompts = {one.id: another_prompt(one.id, one.prompt_sha256 or "", two.prompt_sha256 or "")
               for one, two in pairs if hashes_differ(one, two)}
    tokens = {one.id: at for one, two in pairs if (at := first_difference(one.output_ids, two.output_ids)) is not None}
    others = {one.id: field for one, two in pairs if one.id not in tokens and (field := differing_field(one, two))}
    unhashed = sum(None in (one.prompt_sha256, two.prompt_sha256) for one, two in pairs)
    return Differences(len(pairs), unhashed, prompts, tokens, others)


def first_difference(own: list[int], other: list[int]) -> int | None:
    """Index of the first token that differs, or where the shorter of two answers ends; None for equal ones."""
    if own == other:
        return None
    pairs = enumerate(zip(own, other, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(own), len(other)))


def differing_field(own: Sample, other: Sample) -> str:
    """The first field that differs, likelihoods by more than `NATS`; empty for equal samples. What a sample of an
    earlier schema does not know is equal."""
    close = (own.nll is None) == (other.nll is None) and math.isclose(own.nll or 0, other.nll or 0, rel_tol=NATS)
    if not close:
        return "nll"
    later = (*TREES, "prompt_sha256")
    scores = ("score", "answer", "details", "unscored") if own.unscored or other.unscored else ()
    skipped = {"nll", *scores, *(name for name in later if not (getattr(own, name) and getattr(other, name)))}
    return next((field.name for field in fields(own) if field.name not in skipped
                 and getattr(own, field.name) != getattr(other, field.name)), "")
