"""The axes that a report spans, and the entries on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(Frozen):
    """One position on an axis. `overrides` are command-line overrides; `value` is its place on a numeric axis.

    `baseline` rows are references: never marked as best. `published` is its name in the published file when that
    differs from the label. `only` keeps the entry to some entries of other axes, {axis: [labels]}. `scale`: the entry
    belongs to the embedded edition of the report alone, or to the edition on a paper's pair."""

    label: str
    value: float | None = None
    overrides: tuple[str, ...] = ()
    published: str | None = None
    baseline: bool = False
    only: dict[str, tuple[str, ...]] = {}
    scale: Literal["embedded", "paper"] | None = None

    @property
    def published_label(self) -> str:
        return self.published or self.label

    def apart_from(self, other: Entry) -> bool:
        """Can no point hold both: of different scales, or kept to different entries of some axis? Then both may have
        one label."""
        if None not in (self.scale, other.scale) and self.scale != other.scale:
            return True
        shared = self.only.keys() & other.only.keys()
        return any(set(self.only[axis]).isdisjoint(other.only[axis]) for axis in shared)


def _entries(axis: Any) -> Any:
    """Spell out `{override: "rule.theta={}", values: [0.8, 0.9], label: "θ = {}"}`."""
    if not isinstance(axis, Mapping):
        return axis
    unknown = set(axis) - {"override", "values", "label"}
    if unknown or not {"override", "values"} <= set(axis):
        raise ValueError("an axis is a list of entries, or {override: 'key={}', values: [...], label: '{}' (optional)}")
    label, override = axis.get("label", "{}"), axis["override"]
    numeric = {x: {"value": x} if isinstance(x, int | float) else {} for x in axis["values"]}
    return [{"label": label.format(x), "overrides": [override.format(x)], **value} for x, value in numeric.items()]


Axis = Annotated[tuple[Entry, ...], BeforeValidator(_entries), Field(min_length=1)]
