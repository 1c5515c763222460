"""A rule has the same colour in every figure, and readers of any colour vision can tell the
colours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from plots.rules import COLOURS, FAMILIES, MARKERS, OTHER, PLAIN, family, looks
from plots.style import COLOURS as BY_PLACE
from plots.style import DASHES, INK, look
from results.reports.axes import Axis, Entry
from results.reports.spec import parse_report
from tests.helpers.colour_vision import EYES, distance

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
NEAR = 10
"""Colours nearer than this are taken for one."""


def stems(folder: str) -> list[str]:
    return sorted(path.stem for path in (CONF / folder).glob("*.yaml"))


def rule_axes() -> Iterator[tuple[str, Axis]]:
    """The axes of figures that choose rules and tell them apart by looks; `limit` writes names
    instead."""
    for path in sorted((CONF / "report").glob("*.yaml")):
        given = yaml.safe_load(path.read_text())
        if given.get("kind") == "figure" and "defaults" not in given and path.stem != "limit":
            for name, axis in parse_report(given).axes.items():
                if any(entry.rule for entry in axis):
                    yield f"{path.stem}: {name}", axis


AXES = dict(rule_axes())


@pytest.mark.parametrize("eyes", EYES)
def test_colours_of_families_and_of_places_differ_for_all_eyes(eyes: str) -> None:
    css = (ROOT / "results/reports/templates/index.css").read_text()
    dark = dict(re.findall(r"--c-([0-9a-f]{6}): (#[0-9a-f]{6});", css))
    of_page = [dark[colour[1:].lower()] for colour in BY_PLACE]
    for colours in (list(COLOURS.values()), [*BY_PLACE, INK], of_page):
        apart = {(a, b): distance(a, b, eyes) for a, b in combinations(colours, 2)}
        assert min(apart.values()) >= NEAR, min(apart, key=lambda pair: apart[pair])
    assert len(set(MARKERS.values())) == len(FAMILIES), "and by their markers"


def test_families_hold_rules_and_the_methods_that_bring_them() -> None:
    known = [rule for rules in FAMILIES.values() for rule in rules]
    assert len(known) == len(set(known))
    assert set(known) <= set(stems("rule")) | set(stems("method"))
    for name in stems("rule"):
        given = yaml.safe_load((CONF / "rule" / f"{name}.yaml").read_text())
        assert family(given.get("name", name)) == family(name) or family(name) == "lossless"
    for name in stems("method"):
        defaults = yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())["defaults"]
        [rule] = [one["override /rule"] for one in defaults if "override /rule" in one]
        assert family(name) == (PLAIN if name == "ar" else family(rule)), name
    assert family("a_rule_of_my_own") == OTHER


@pytest.mark.parametrize("where", AXES)
def test_series_of_every_figure_differ(where: str) -> None:
    found = looks(AXES[where])
    rules = {entry.label: entry.rule for entry in AXES[where] if entry.rule}
    of = Counter(map(family, rules.values()))
    few = {label: rule for label, rule in rules.items() if of[family(rule)] <= len(DASHES)}
    assert all(found[label].colour == COLOURS[family(rule)] for label, rule in few.items())
    crowded = Counter(found[label].colour for label in rules.keys() - few.keys())
    assert max(crowded.values(), default=0) <= (1 if where.startswith("fsd_fig5") else 2), (
        "of one family"
    )
    assert len({(shape.colour, shape.marker, shape.dash) for shape in found.values()}) == len(found)


def test_the_rule_is_that_of_the_overrides_and_not_of_the_label() -> None:
    axis = (
        Entry(label="ARC", overrides=("method=mars", "rule=fsd")),
        Entry(label="SD", overrides=("method=sps",)),
        Entry(label="MARS", overrides=("drafter=none", "rule=lossless")),
        Entry(label="T = 0.2", frontier=True),
    )
    assert [entry.rule for entry in axis] == ["fsd", "sps", "ar", "lossless"]
    assert [shape.colour for shape in looks(axis).values()] == [
        COLOURS["FSD"],
        COLOURS["lossless"],
        INK,
        COLOURS["lossless"],
    ]
    places = (
        Entry(label="K = 7", overrides=("draft.length=7",)),
        Entry(label="pair", overrides=("pair=tiny",)),
    )
    assert list(looks(places).values()) == [look(0), look(1)], (
        "what is no rule is told apart by its place"
    )
