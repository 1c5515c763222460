"""The clocks of a cell on the machine of a cost profile, its own and that of plain decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from methods import registry
from results.metrics.cost import Clock, Forwards, Profile, modelled, plain_clock
from results.store.compared import Compared

if TYPE_CHECKING:
    from results.store.sample import FailedSample


@dataclass(frozen=True, slots=True)
class Clocks:
    """What says how long a cell and its baseline would take.

    own, base  of the cell, of plain decoding.
    """

    own: Clock
    base: Clock

    @classmethod
    def of(cls, profile: Profile, config: Mapping[str, Any]) -> Clocks:
        """The clocks of a cell with this configuration, as cell.yaml holds it. Raises StoreError where the profile does
        not price its drafter, rule or batch."""
        drafter, rule = config["drafter"]["name"], config["rule"]["name"]
        greedy, batch = config["decoding"]["temperature"] == 0, config["batch"]
        own = Clock(profile, drafter, rule, greedy, batch, forwards_of(config))
        return cls(own, plain_clock(profile, greedy, batch))

    def modelled(self, records: Sequence[Compared | FailedSample]) -> list[Compared | FailedSample]:
        """The prompts as if all of them had been timed on that machine. Raises StoreError."""
        return [replace(record, timed=modelled(self.own, self.base, record)) if isinstance(record, Compared) else record
                for record in records]


def forwards_of(config: Mapping[str, Any]) -> Forwards:
    """Levels of a draft -> tokens of each forward of the drafter's model, for the cell with this configuration."""
    options = {name: value for name, value in config["drafter"].items() if name != "name"}
    drafter = registry.drafter(config["drafter"]["name"])(**options)
    return partial(drafter.forwards, config["draft"]["length"])
