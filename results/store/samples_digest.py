"""What a samples file held when its cell was summarised."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SamplesDigest(BaseModel):
    """What samples.jsonl held when its cell was summarised. Samples that are appended later do not change it.

    count   prompts
    bytes   length of its whole lines
    sha256  of these bytes
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    count: int
    bytes: int
    sha256: str
