"""The axes that a report spans, and the entries on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from results.reports.scales import SCALES, Scale, spelled_out

SETTING, AS_GIVEN = "Setting", "as given"
"""The axis that the variants of entries make, and its entry for those without."""


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _spell_out(axis: Any) -> Any:
    """The entries of values of one override; a list of entries as it is."""
    return spelled_out(axis) if isinstance(axis, Mapping) else axis


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Entry(Frozen):
    """One position on an axis.

    label       its name in tables and figures.
    short       its name in tables for people, where the label stands in a footnote; the label if
                empty.
    value       its place on a numeric axis.
    overrides   the command-line overrides it adds to a point, which the command line cannot change.
    settings    overrides that go with it, in place of those of the report's base; the command line
                wins.
    published   its name in the published file, if that differs from the label.
    baseline    a reference, never marked as best.
    only        limits the entry to some entries of other axes: {axis: labels}.
    scale       the scales that have the entry, one or several; all of them unless given.
    no_cell     why the project cannot run what the paper has here: the cell stays in the table with
                this reason.
    judged_at   the temperature that the row is judged at in place of its own: a control, lossless
                decoding at another temperature presented as a rule.
    altered     the row is no decoding, but the target with rounded weights (`Q4_0`) or at another
                temperature (`T = 0.9`): it has the D of that, per token, on the answers of plain
                decoding.
    frontier    a row of lossless decoding at one temperature, made by `choice.frontier`.
    variants    forms of the entry, written like an axis; they make up the axis "Setting"
                (`spell_variants`).
    """

    label: str
    short: str = ""
    value: float | None = None
    overrides: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    published: str | None = None
    baseline: bool = False
    only: dict[str, tuple[str, ...]] = {}
    scale: Annotated[tuple[Scale, ...], BeforeValidator(_as_tuple)] = ()
    no_cell: str = ""
    judged_at: float | None = Field(default=None, gt=0)
    altered: str = ""
    frontier: bool = False
    variants: Annotated[tuple[Entry, ...], BeforeValidator(_spell_out)] = ()

    @property
    def published_label(self) -> str:
        return self.label if self.published is None else self.published

    @property
    def rule(self) -> str:
        """The rule that the entry chooses, or the method that brings one; "ar" for plain decoding;
        may be empty."""
        chosen = dict(line.partition("=")[::2] for line in self.overrides)
        if chosen.get("drafter") == "none":
            return "ar"
        return chosen.get("rule") or chosen.get("method") or "lossless" * self.frontier

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Whether the entry may be combined with these labels, {axis: label}."""
        return all(labels[axis] in allowed for axis, allowed in self.only.items())

    def excludes(self, other: Entry) -> bool:
        """Whether no point can hold both: they differ in scale, or `only` limits them to different
        entries of an axis. Such entries may share a label."""
        if self.scale and other.scale and set(self.scale).isdisjoint(other.scale):
            return True
        shared = self.only.keys() & other.only.keys()
        return any(set(self.only[axis]).isdisjoint(other.only[axis]) for axis in shared)


Axis = Annotated[tuple[Entry, ...], BeforeValidator(_spell_out), Field(min_length=1)]
Axes = dict[str, Axis]


def spell_variants(axes: Axes) -> Axes:
    """The axes with one more, "Setting", where entries have variants: each goes with its own entry,
    "as given" with those that have none. Raises ValueError for variants on several axes."""
    varied = [name for name, axis in axes.items() if any(entry.variants for entry in axis)]
    if not varied:
        return axes
    if len(varied) > 1 or SETTING in axes:
        raise ValueError(
            f"'variants' make up the axis {SETTING!r}: give them on one axis, and name no other so"
        )
    [name] = varied
    settings = [
        variant.model_copy(
            update={
                "only": variant.only | {name: (entry.label,)},
                "scale": variant.scale or entry.scale,
            }
        )
        for entry in axes[name]
        for variant in entry.variants
    ]
    if plain := tuple(entry.label for entry in axes[name] if not entry.variants):
        settings.append(Entry(label=AS_GIVEN, only={name: plain}))
    entries = tuple(entry.model_copy(update={"variants": ()}) for entry in axes[name])
    return {**axes, name: entries, SETTING: tuple(settings)}


def without_axes(axes: Axes, names: Collection[str]) -> Axes:
    """The other axes, with entries that are not limited to entries of those left out."""
    return {
        name: tuple(
            entry.model_copy(
                update={
                    "only": {
                        axis: labels for axis, labels in entry.only.items() if axis not in names
                    }
                }
            )
            for entry in axis
        )
        for name, axis in axes.items()
        if name not in names
    }


def without_frontier(axes: Axes) -> Axes:
    """The axes without the rows of lossless decoding that `choice.frontier` made."""
    return {
        name: tuple(entry for entry in axis if not entry.frontier) for name, axis in axes.items()
    }


def without_altered(axes: Axes) -> Axes:
    """The axes without the rows of an altered target."""
    return {
        name: tuple(entry for entry in axis if not entry.altered) for name, axis in axes.items()
    }


def check_axes(axes: Axes) -> Axes:
    """Raises ValueError for two entries of one label that a point could hold, and for an unknown
    label in `only`."""
    for name, axis in axes.items():
        if any(
            entry.label == other.label and not entry.excludes(other)
            for entry, other in combinations(axis, 2)
        ):
            raise ValueError(f"axis {name!r} has entries of one label: give each its own")
        for entry in axis:
            check_labels(axes, entry.only, f"axis {name!r}: 'only'")
    return axes


def check_labels(axes: Axes, named: Mapping[str, tuple[str, ...]], where: str) -> None:
    """Raises ValueError for {axis: labels} of which the axes do not have all."""
    for axis, labels in named.items():
        known = {entry.label for entry in axes.get(axis, ())}
        if not set(labels) <= known:
            raise ValueError(
                f"{where} names {axis} {labels}; "
                f"allowed: {sorted(known) or 'none, there is no such axis'}"
            )


def pairs_of(axes: Axes) -> dict[Scale, list[str]]:
    """Scale -> the pairs that its entries choose."""
    pairs: dict[Scale, list[str]] = {scale: [] for scale in SCALES}
    for entry in (entry for axis in axes.values() for entry in axis):
        for scale in entry.scale or SCALES:
            pairs[scale] += [
                line.removeprefix("pair=") for line in entry.overrides if line.startswith("pair=")
            ]
    return pairs


def at_scale(axis: Axis, scale: Scale) -> Axis:
    """The entries of this scale and of none; the whole axis if there are no such entries."""
    return tuple(entry for entry in axis if not entry.scale or scale in entry.scale) or axis


def of_pairs(axis: Axis, pairs: Collection[str]) -> Axis:
    """The entries that choose one of these pairs; the whole axis if none does."""
    chosen = {f"pair={pair}" for pair in pairs}
    return tuple(entry for entry in axis if chosen & set(entry.overrides)) or axis


def drop_impossible(axes: Axes) -> Axes:
    """Remove labels that have left their axis from every `only`, and entries whose `only` then
    allows nothing."""
    labels = {name: {entry.label for entry in axis} for name, axis in axes.items()}
    return {
        name: tuple(_limit(entry, labels) for entry in axis if _is_possible(entry, labels))
        for name, axis in axes.items()
    }


def _is_possible(entry: Entry, labels: Mapping[str, set[str]]) -> bool:
    return all(labels[axis] & set(allowed) for axis, allowed in entry.only.items())


def _limit(entry: Entry, labels: Mapping[str, set[str]]) -> Entry:
    only = {
        axis: tuple(label for label in allowed if label in labels[axis])
        for axis, allowed in entry.only.items()
    }
    return entry.model_copy(update={"only": only})


def replaced(overrides: Sequence[str], by: Sequence[str]) -> tuple[str, ...]:
    """The overrides, those with a key of `by` left out, and `by`. Where `by` chooses another option
    (`drafter=none` in place of `drafter=eagle3`), keys of the former one (`drafter.total`) are left
    out too."""
    options = [line.partition("=")[::2] for line in overrides]
    chosen = dict(line.partition("=")[::2] for line in by)
    others = {key for key, value in options if chosen.get(key, value) != value}
    return (
        *(
            line
            for line, (key, _) in zip(overrides, options, strict=True)
            if key not in chosen and key.partition(".")[0] not in others
        ),
        *by,
    )
