"""How two measurements of one cell differ, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from results.store.sample import Record, Sample

NATS = 1e-3
"""Relative tolerance of likelihoods: batches and processors differ in how they round sums."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Two measurements of one cell.

    common     prompts that both answered
    tokens     prompt id -> index of the first token that differs, all turns
    others     prompt id -> the first field that differs, for equal tokens
    """

    common: int
    tokens: dict[str, int]
    others: dict[str, str]

    @property
    def first(self) -> str:
        """The first differing prompt, in one line; empty where all are equal."""
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
    tokens = {one.id: at for one, two in pairs if (at := parting(one.output_ids, two.output_ids)) is not None}
    others = {one.id: field for one, two in pairs if one.id not in tokens and (field := differing_field(one, two))}
    return Differences(len(pairs), tokens, others)


def parting(own: list[int], other: list[int]) -> int | None:
    """Index of the first token that differs, or where the shorter of two answers ends; None for equal ones."""
    if own == other:
        return None
    pairs = enumerate(zip(own, other, strict=False))
    return next((at for at, (one, two) in pairs if one != two), min(len(own), len(other)))


def differing_field(own: Sample, other: Sample) -> str:
    """The first field that differs, likelihoods by more than `NATS`; empty for equal samples."""
    close = (own.nll is None) == (other.nll is None) and math.isclose(own.nll or 0, other.nll or 0, rel_tol=NATS)
    if not close:
        return "nll"
    aligned = replace(other, nll=own.nll)
    return next((field.name for field in fields(own) if getattr(own, field.name) != getattr(aligned, field.name)), "")
