"""Scorers of the datasets, each built on the standard tool of its field. A task's YAML names one
under `scorer`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tasks.scorers.base import Nothing, Scorer
from tasks.scorers.code import Code
from tasks.scorers.harness import Harness
from tasks.scorers.ifeval import IFEval
from tasks.scorers.livecodebench import LiveCodeBench
from tasks.scorers.rouge import RougeL

__all__ = ["AnyScorer", "Scorer"]

AnyScorer = Annotated[
    Nothing | RougeL | Harness | IFEval | Code | LiveCodeBench, Field(discriminator="name")
]
