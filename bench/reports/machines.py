"""Reports under a cost profile, and machines in the plane of what drafting and verifying cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from bench.config.settings import profile_of
from bench.run.cost_clock import forwards_of
from results.metrics.cost import cycle_sizes, ratios
from results.reports.figures import Machine, When

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.compose import Composer
    from results.reports.spec import ReportSpec
    from results.store.sample import Sample

    Spec = TypeVar("Spec", bound=ReportSpec)

FORWARDS = ("nodes_per_cycle", "forwards_per_cycle")
"""Metrics that `sizes_of` computes for the reports that show them."""


def on_machines(spec: Spec, hydra: Composer, cost: str | None) -> Spec:
    """The report with the machine of `cost=NAME` in its name and title, and the shipped machines in a figure that marks
    them."""
    figure = getattr(spec, "figure", None)
    if isinstance(figure, When):
        marked = figure.model_copy(update={"machines": shipped(hydra, figure.drafter)})
        spec = spec.model_copy(update={"figure": marked})
    if cost is None:
        return spec
    name = cost.partition("=")[2]
    return spec.model_copy(update={"name": f"{spec.name}_{name}", "title": f"{spec.title}, modelled for {name}"})


def shipped(hydra: Composer, drafter: str) -> tuple[Machine, ...]:
    """The machines of conf/cost that price the drafter."""
    marked = []
    for name in hydra.options("cost"):
        profile = profile_of({"cost": hydra.section("cost", name)})
        if profile is not None and (at := ratios(profile, drafter)) is not None:
            marked.append(Machine(title=profile.title, draft=at[0], verify=at[1]))
    return tuple(marked)


def sizes_of(cell: Cell, samples: Sequence[Sample]) -> dict[str, Any]:
    """What a cycle of the cell verifies and drafts, in the mean."""
    return cycle_sizes(samples, forwards_of(cell.model_dump(mode="json")))
