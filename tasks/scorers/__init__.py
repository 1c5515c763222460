"""Scorers of the datasets, each built on the standard tool of its field. A task's YAML names one
under `scorer`; one that lies outside of this project is `file.py:Class` or
`package.module:Class`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, get_args

from pydantic import Field, SerializeAsAny, WrapValidator

from tasks.scorers.base import Nothing, Scorer, class_outside
from tasks.scorers.code import Code
from tasks.scorers.harness import Harness
from tasks.scorers.ifeval import IFEval
from tasks.scorers.livecodebench import LiveCodeBench
from tasks.scorers.rouge import RougeL

__all__ = ["AnyScorer", "Scorer"]

Shipped = Annotated[
    Nothing | RougeL | Harness | IFEval | Code | LiveCodeBench, Field(discriminator="name")
]
NAMES = frozenset(
    get_args(option.model_fields["name"].annotation)[0] for option in get_args(get_args(Shipped)[0])
)


def _chosen(options: Any, shipped: Callable[[Any], Scorer]) -> Scorer:
    """One of the project's by its name, or one outside of it. Raises ValueError."""
    if isinstance(options, Scorer):
        return options
    given = str(options.get("name", ""))
    outside = None if given in NAMES else class_outside(given)
    if outside is None:
        return shipped(options)
    name, scorer = outside
    return scorer.model_validate({**options, "name": name})


AnyScorer = Annotated[SerializeAsAny[Shipped], WrapValidator(_chosen)]
