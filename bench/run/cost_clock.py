"""Cells on the machine of a cost profile: their clocks, and their folders as if they had been timed
there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.run.requested_cell import RequestedCell
from methods import registry
from methods.sampling import Sampling
from results.metrics.cost import DRAWN, Clock, Forwards, Profile, modelled, plain_clock
from results.metrics.summary import summarise
from results.store.sample import Compared

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.drafters.base import Drafter
    from results.metrics.summary import Summary
    from results.store.cells import Store
    from results.store.sample import FailedSample, Timed


@dataclass(frozen=True, slots=True)
class Clocks:
    """What says how long a cell and its baseline would take.

    own, base  of the cell, of plain decoding.
    """

    own: Clock
    base: Clock

    @classmethod
    def of(cls, profile: Profile, config: Mapping[str, Any]) -> Clocks:
        """The clocks of a cell with this configuration, as cell.yaml holds it. Raises StoreError
        where the profile does not price its drafter, rule or batch."""
        drafter, rule = config["drafter"]["name"], config["rule"]["name"]
        greedy, batch = config["decoding"]["temperature"] == 0, config["batch"]
        priced = priced_as(drafter_of(config), drafter, Sampling(config["decoding"]["temperature"]))
        own = Clock(profile, priced, rule, greedy, batch, forwards_of(config))
        return cls(own, plain_clock(profile, greedy, batch))

    def modelled(self, records: Sequence[Compared | FailedSample]) -> list[Compared | FailedSample]:
        """The prompts as if all of them had been timed on that machine. Raises StoreError."""
        return [
            replace(record, timed=modelled(self.own, self.base, record))
            if isinstance(record, Compared)
            else record
            for record in records
        ]


def forwards_of(config: Mapping[str, Any]) -> Forwards:
    """Levels of a draft -> tokens of each forward of the drafter's model, for the cell with this
    configuration."""
    return partial(drafter_of(config).forwards, config["draft"]["length"])


def drafter_of(config: Mapping[str, Any]) -> Drafter:
    """The drafter of a cell with this configuration."""
    options = {name: value for name, value in config["drafter"].items() if name != "name"}
    return registry.drafter(config["drafter"]["name"])(**options)


def priced_as(drafter: Drafter, name: str, sampling: Sampling) -> str:
    """The name under which a profile prices the drafts of a drafter."""
    return name + DRAWN if drafter.samples(sampling) else name


class PricedCell(RequestedCell):
    """Reads as if all prompts had been timed on the machine of a cost profile, and none on this
    one."""

    def __init__(self, cell: Cell, store: Store, profile: Profile) -> None:
        super().__init__(cell, store)
        self._profile = profile

    def compared(self) -> list[Compared | FailedSample]:
        """As `RequestedCell.compared`, with the modelled clock. Raises StoreError also for what
        cannot be priced."""
        untimed = self.untimed()
        return Clocks.of(self._profile, self.cell.model_dump(mode="json")).modelled(untimed)

    def timed(self) -> list[Timed]:
        """The modelled clock of every answered prompt. Raises StoreError."""
        return [
            pair.timed
            for pair in self.compared()
            if isinstance(pair, Compared) and pair.timed is not None
        ]

    def summarised(self, records: list[Compared | FailedSample]) -> Summary:
        """The summary of these records, their speeds on that machine. What was timed here, phases
        among it, is left out."""
        task = self.cell.load_task()
        return summarise(records, metric=task.metric, proportion=task.proportion).with_values(
            asked=self.cell.n
        )
