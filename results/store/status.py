"""The state of a store: its cells by rotation, complete, running, failed or open; and the time left of running ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from statistics import mean
from typing import Literal

from results.store.cells import Entry, Store
from results.store.files import Holder, holders

State = Literal["complete", "running", "failed", "open", "damaged"]
STATES: tuple[State, ...] = ("complete", "running", "failed", "open", "damaged")
"""open: begun, not finished, and without a process that works on it."""


@dataclass(slots=True)
class RotationState:
    """The cells of a store that are timed beside one baseline.

    entries  of these cells
    states   of these cells, in the same order
    holder   the process that works on them, or None
    unbegun  cells that the holder has not begun and of which the store holds nothing yet
    seconds  time left, s; None if it cannot be estimated yet
    partly   `seconds` excludes the timed pass, which cannot be estimated yet
    """

    entries: list[Entry] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    holder: Holder | None = None
    unbegun: int = 0
    seconds: float | None = None
    partly: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all cells are complete, and no process works on them."""
        return self.holder is None and set(self.states) <= {"complete"}


def rotations(store: Store, now: datetime) -> list[RotationState]:
    """The rotations of a store: running ones first, then others that are not done."""
    entries = list(store.entries())
    held = list(holders(store.root).values())
    working = {cell: holder for holder in held for cell in holder.cells}
    groups: dict[tuple[str, int], RotationState] = {}
    for entry in entries:
        group = groups.setdefault((entry.baseline, entry.batch), RotationState())
        group.entries.append(entry)
        group.states.append(state_of(entry, entry.key in working))
        group.holder = working.get(entry.key, group.holder)
    listed, keys = list(groups.values()), {entry.key for entry in entries}
    for holder in held:
        own, unbegun = [group for group in listed if group.holder is holder], len(set(holder.cells) - keys)
        if len(own) == 1:
            own[0].unbegun = unbegun
        elif unbegun:  # their rotation is not known yet
            listed.append(RotationState(holder=holder, unbegun=unbegun))
    for group in listed:
        if group.holder is not None:
            group.seconds, group.partly = time_left(group, store, now)
    return sorted(listed, key=lambda group: (group.holder is None, group.is_done))


def state_of(entry: Entry, is_held: bool) -> State:
    """The state of a cell; `is_held`: a process that will complete it works on its rotation."""
    if entry.damage:
        return "damaged"
    if entry.complete:
        return "complete"
    return "running" if is_held else "failed" if entry.failure else "open"


def time_left(group: RotationState, store: Store, now: datetime) -> tuple[float | None, bool]:
    """Seconds until the holder of a rotation has completed its cells, and whether they exclude the timed pass. Answers
    are extrapolated at the rate of this run, timed prompts at the mean of those timed so far.

    Cells not begun are assumed to take the average of the others. (None, False) before the first answer."""
    assert group.holder is not None
    began = group.holder.since
    running = [entry for entry, state in zip(group.entries, group.states, strict=True)
               if state == "running" and entry.run and entry.run["since"] >= began]
    if not running:
        return None, False
    cells = 1 + group.unbegun / len(running)
    answers = sum(entry.run["prompts"] - entry.answered for entry in running)
    given = sum(entry.answered - entry.run["answered_before"] for entry in running)
    spent = (now - min(datetime.fromisoformat(entry.run["since"]) for entry in running)).total_seconds()
    untimed = sum(max(0, entry.run["timed"] - entry.timed) for entry in running)
    clocks = [arm.prefill_s + arm.decode_s for entry in running for row in store.cell(entry.key).timed()
              for arm in row.runs] if untimed else []
    if answers and not given:
        return None, False
    left = answers * cells * spent / given if answers else 0.0
    return left + (untimed * cells * 2 * mean(clocks) if clocks else 0.0), bool(untimed and not clocks)
