"""What is known of the papers' models and data sets without the hub (known.yaml)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel


class Gpu(BaseModel):
    """The GPU that hours are estimated for: memory bandwidth and memory."""

    name: str
    bytes_per_s: float
    bytes: float


class Model(BaseModel):
    """Parameters; those that a token reads (None: all); keys and values that the cache holds for a token. Whether the
    hub gives it only to who was granted access."""

    parameters: int
    kv: int
    active: int | None = None
    gated: bool = False

    @property
    def read(self) -> int:
        return self.active or self.parameters


class Speed(BaseModel):
    """Tokens per second of one core: plain decoding, and with a drafter."""

    plain: float
    drafted: float


class Speeds(BaseModel):
    """A pair's, in the batches of the quality pass and prompt by prompt under the clock."""

    answers: Speed
    clock: Speed


class Data(BaseModel):
    """A data set on the hub: bytes of what a task downloads, rows of the split that it reads; None is not known."""

    bytes: float | None = None
    rows: int


class Known(BaseModel):
    gpu: Gpu
    cpu: dict[str, Speeds]
    models: dict[str, Model]
    data: dict[str, Data]


@cache
def known() -> Known:
    return Known.model_validate(yaml.safe_load((Path(__file__).parent / "known.yaml").read_text(encoding="utf-8")))


def download(source: str) -> float | None:
    """Bytes of a model in two bytes a parameter; None for one that is not known."""
    model = known().models.get(source)
    return None if model is None else 2 * model.parameters
