"""The evidence on a row's gain over the best lossless one, as summaries carry it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Evidence(BaseModel):
    """What the numbers say of one statement.

    for_p      one-sided p-value of its opposite: small where the statement is shown
    against_p  one-sided p-value of the statement: small where its opposite is shown
    errors     how many standard errors the estimate lies on the statement's side; negative on the other side
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    for_p: float
    against_p: float
    errors: float


class GainTests(BaseModel):
    """The three statements that make a gain, each tested one-sided.

    best     answers are complete sooner than with the best lossless method
    plain    sooner than with plain decoding
    quality  not worse than plain decoding by more than the margin, in score or in NLL
    measure  which of the two
    n        prompts
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    best: Evidence
    plain: Evidence
    quality: Evidence
    measure: Literal["score", "nll"]
    n: int

    @property
    def all(self) -> tuple[Evidence, Evidence, Evidence]:
        return self.best, self.plain, self.quality
