"""Cells on the machine of a cost profile: their clocks, and their folders as if they had been timed
there."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bench.run.requested_cell import RequestedCell
from results.metrics.cost import DRAWN, Clock, Profile, modelled, plain_clock
from results.metrics.summary import summarise
from results.store.sample import Compared

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.drafters.base import Drafter
    from methods.sampling import Sampling
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import FailedSample, Timed


def priced_as(drafter: Drafter, name: str, sampling: Sampling) -> str:
    """The name under which a profile prices the drafts of a drafter."""
    return name + DRAWN if drafter.samples(sampling) else name


def clocks_of(profile: Profile, cell: Cell) -> tuple[Clock, Clock]:
    """How long the cell would take, and plain decoding. Raises StoreError where the profile does
    not price its drafter, rule or batch."""
    drafter, sampling = cell.drafter.options, cell.decoding.sampling
    clock = Clock(
        profile,
        priced_as(drafter, cell.drafter.name, sampling),
        cell.rule.name,
        sampling.greedy,
        cell.batch,
        partial(drafter.forwards, cell.draft.length),
    )
    return clock, plain_clock(profile, sampling.greedy, cell.batch)


class PricedCell(RequestedCell):
    """Reads as if all prompts had been timed on the machine of a cost profile, and none on this
    one."""

    def __init__(self, cell: Cell, store: Store, profile: Profile) -> None:
        super().__init__(cell, store)
        self._profile = profile

    def compared(self) -> list[Compared | FailedSample]:
        """As `RequestedCell.compared`, with the modelled clock. Raises StoreError also for what
        cannot be priced."""
        clock, plain = clocks_of(self._profile, self.cell)
        return [
            replace(record, timed=modelled(clock, plain, record))
            if isinstance(record, Compared)
            else record
            for record in self.untimed()
        ]

    def timed(self) -> list[Timed]:
        """The modelled clock of every answered prompt. Raises StoreError."""
        return [
            pair.timed
            for pair in self.compared()
            if isinstance(pair, Compared) and pair.timed is not None
        ]

    def summary(self) -> Summary:
        """As `RequestedCell.summary`, with the speeds of that machine. What was timed here, phases
        among it, is left out."""
        task = self.cell.load_task()
        return summarise(
            self.compared(), metric=task.metric, proportion=task.proportion
        ).with_values(asked=self.cell.n)
