"""A run on one screen: plan, answer, score, time, summarise.

`run` is the command's own process. `measure` is called for groups of cells, here or in another
process, on this machine or on a cluster: wherever the launcher puts them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.run.claims import Passes, claimed, forget_times, wait_for
from bench.run.launch import launch
from bench.run.quality import await_baselines, quality_pass
from bench.run.timed import timed_pass

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import DecodingEngine
    from bench.run.session import Session
    from results.store.cells import Store


def run(
    cells: Sequence[Cell],
    session: Session,
    traced: Collection[str] = (),
    shown: Collection[str] = (),
    sessions: int = 1,
) -> None:
    """Complete the cells: measure and trace what is missing, then write the summaries. What fails
    is recorded in the cells' folders. `traced` and `shown` are as in `Passes.of`; `sessions`:
    measuring sessions where the command names no number. Where another one is due this process
    begins anew and does not return."""
    settings, store = session.settings, session.store
    passes = Passes.of(settings, cells, traced, shown, settings.sessions or sessions)
    if settings.fresh:
        forget_times(cells, store)
        session.forget()
    timings = session.timings(cells)
    remaining = session.lacking(cells, passes.traced)
    while remaining:
        elsewhere = launch(measure, remaining, passes, settings.launch, store, session.engines)
        wait_for(elsewhere, store)  # if that process did not complete them, this one does
        session.forget()
        remaining = session.lacking(elsewhere, passes.traced)
    if passes.sessions > 1 and session.timings(cells) > timings:
        session.begin_another(cells)
    session.summarise(cells)


def measure(
    cells: Sequence[Cell], passes: Passes, store: Store, engine: DecodingEngine
) -> list[Cell]:
    """Complete cells in two passes: all prompts without a clock, then the timed ones. A cell that
    fails does not stop the others: its folder says why. Returns the cells of groups that another
    process works on: they are left alone."""
    with ExitStack() as locks:
        claims = claimed(cells, passes, store, locks)  # each with its Todo
        engine.prepare([claim.cell for claim in claims.by_name.values()])
        quality_pass(claims.by_name.values(), passes, engine)  # answers and scores
        await_baselines(claims, passes, store, engine)
        for claim in claims.by_name.values():
            claim.look(passes)  # once more: what is answered now
        timed_pass(claims.wanted, passes, engine)
        for claim in claims.by_name.values():
            claim.record_missing()
    return [cell for cell in cells if cell.name in claims.refused]
