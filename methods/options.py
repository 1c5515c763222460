"""The base of what a user sets: options, and the files that rules read."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictOptions(BaseModel):
    """Read-only; keys that it does not know, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
