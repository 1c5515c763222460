"""The options of experiment trackers; bench/run/trackers logs with them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Tracker(BaseModel):
    """The options of a tracker."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class NoTracker(Tracker):
    """Results stay in the store."""


class ProjectTracker(Tracker):
    """What all trackers take: conf/tracker explains every field."""

    project: str = Field("leeway", min_length=1)
    answers: int = Field(64, ge=0)
    timeout: float = Field(60, gt=0)


class Wandb(ProjectTracker):
    """Weights & Biases."""

    entity: str | None = None


class Trackio(ProjectTracker):
    """trackio: a database of this machine, without an account."""


TRACKERS: dict[str, type[Tracker]] = {"none": NoTracker, "wandb": Wandb, "trackio": Trackio}
