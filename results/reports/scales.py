"""A report at each scale: which pairs and tasks stand for an entry, how many prompts, and how long
the answers are. conf/scale/*.yaml hold them, once for all reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

FOLDER = Path(__file__).parents[2] / "conf" / "scale"
Scale = Literal["embedded", "real", "paper"]
"""On the embedded pair, on a real model that needs no hub, on the pairs of a paper."""
SCALES: tuple[Scale, ...] = ("embedded", "real", "paper")
Plain = dict[str, Any]


@cache
def scales() -> Mapping[str, Plain]:
    """Scale -> its YAML."""
    return {
        name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in SCALES
    }


def at_all_scales(section: Mapping[str, Any]) -> Plain:
    """A report's YAML with each name of conf/scale in its axes replaced by entries, and the base of
    each scale among those of `base_at`, where the report gives `settings_of`. Raises ValueError for
    an unknown name."""
    whose, axes, full = section.get("settings_of", ""), section.get("axes"), dict(section)
    known = scales()["paper"]["papers"]
    if whose and whose not in known:
        raise ValueError(f"settings_of={whose}: unknown; one of {', '.join(known)}")
    if isinstance(axes, Mapping):
        full["axes"] = {
            name: list(_entries(axis, SCALES, whose)) if _is_listed(axis) else axis
            for name, axis in axes.items()
        }
    if whose:
        paper = known[whose]
        full.setdefault("not_printed", paper.get("not_printed", ""))
        if isinstance(published := section.get("published"), Mapping):
            full["published"] = {"hardware": paper.get("hardware", ""), **published}
        at_scales = section.get("base_at") or {}
        full["base_at"] = {
            scale: _filled(at_scales.get(scale, ()), section.get("base", ()), _base(scale, whose))
            for scale in SCALES
        }
    return full


def _is_listed(axis: Any) -> bool:
    """Whether an axis is a list, of one scale or of several, rather than values of one override."""
    return isinstance(axis, list | tuple) or (
        isinstance(axis, Mapping) and bool(axis) and set(axis) <= set(SCALES)
    )


def _entries(axis: Any, of: Sequence[str], whose: str) -> Iterator[Any]:
    """The entries of an axis as YAML gives it, those of these scales."""
    if isinstance(axis, Mapping):
        for scale, entries in axis.items():
            yield from _entries(
                [entries] if isinstance(entries, Mapping) else entries, [scale], whose
            )
        return
    for item in axis:
        name, changes = None, {}
        if isinstance(item, str):
            name = item
        elif isinstance(item, Mapping) and "use" in item:
            name = item["use"]
            changes = {key: value for key, value in item.items() if key != "use"}
        if name is not None:
            yield from _named(name, changes, of, whose)
        elif isinstance(item, Mapping) and "values" in item:
            yield from (_limited(entry, of) for entry in spelled_out(item))
        else:
            yield _limited(item, of) if isinstance(item, Mapping) else item


def _limited(entry: Mapping[str, Any], of: Sequence[str]) -> Plain:
    return dict(entry) if len(of) == len(SCALES) else {**entry, "scale": list(of)}


def _named(name: str, changes: Mapping[str, Any], of: Sequence[str], whose: str) -> Iterator[Plain]:
    """The entry of this name at each scale that has one. `changes` replace its keys; overrides are
    added."""
    at_scales = {scale: _entry(name, scale, whose) for scale in of}
    entries = {scale: entry for scale, entry in at_scales.items() if entry is not None}
    if not entries:
        known = sorted(
            {
                key
                for scale in of
                for part in _parts(scale, whose)
                for group in ("pairs", "tasks")
                for key in part.get(group, ())
            }
        )
        raise ValueError(
            f"{name}: neither a pair nor a task of conf/scale; it has {', '.join(known)}"
        )
    for scale, entry in entries.items():
        overrides = [*entry["overrides"], *changes.get("overrides", ())]
        yield {**entry, **changes, "overrides": overrides, "scale": scale}


def _entry(name: str, scale: str, whose: str) -> Plain | None:
    """The entry of a pair or of the task that has a role."""
    for part in reversed(_parts(scale, whose)):
        if name in part.get("tasks", ()):
            task = part["tasks"][name]
            task = {"label": task, "task": task} if isinstance(task, str) else task
            rest = {key: value for key, value in task.items() if key != "task"}
            return {**rest, "overrides": [f"task={task['task']}"]}
        if name in part.get("pairs", ()):
            pair = part["pairs"][name]
            return {
                **({"label": pair} if isinstance(pair, str) else pair),
                "overrides": [f"pair={name}"],
            }
    return None


def _parts(scale: str, whose: str) -> list[Plain]:
    """What a scale has for all reports and, behind it, for those of one paper."""
    whole = scales()[scale]
    return [whole, whole.get("papers", {}).get(whose, {})]


def _base(scale: str, whose: str) -> list[str]:
    return [line for part in _parts(scale, whose) for line in part.get("base", ())]


def _filled(at_scale: Sequence[str], base: Sequence[str], of_scale: Sequence[str]) -> list[str]:
    """The overrides of a report at a scale, with those of the scale that the report does not
    give."""
    keys = {line.partition("=")[0] for line in (*at_scale, *base)}
    return [*at_scale, *(line for line in of_scale if line.partition("=")[0] not in keys)]


def spelled_out(axis: Mapping[str, Any]) -> list[Plain]:
    """The entries of `{override: "rule.theta={}", values: [0.8, 0.9], label: "θ = {}"}`; further
    keys go to each, as do further `overrides`; `published` and `altered` may hold the value too.
    Raises ValueError without `override` and `values`."""
    texts = [key for key in ("label", "published", "altered") if key in axis]
    rest = {key: value for key, value in axis.items() if key not in ("override", "values", *texts)}
    if not {"override", "values"} <= set(axis):
        raise ValueError(
            "an axis is a list of entries, or {override: 'key={}', values: [...], label: '{}' "
            "(optional)}, or one of these for each scale, {embedded: ..., real: ..., paper: ...}"
        )
    override = axis["override"]
    return [
        {
            "label": str(value),
            **rest,
            **{key: axis[key].format(value) for key in texts},
            "overrides": [
                *axis.get("overrides", ()),
                *([override.format(value)] if override else []),
            ],
            "value": value if isinstance(value, int | float) else None,
        }
        for value in dict.fromkeys(axis["values"])
    ]
