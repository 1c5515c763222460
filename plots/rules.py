"""One colour for each family of rules, the same in every figure; the rules and settings of one
family differ in marker, line style and hatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import cycle

from plots.style import (
    BLUE,
    BROWN,
    DASHES,
    GREEN,
    GREY,
    HATCHES,
    INDIGO,
    INK,
    OLIVE,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    WINE,
    Look,
    look,
)
from plots.style import COLOURS as BY_PLACE
from results.reports.axes import Entry

PLAIN, OTHER = "plain decoding", "other"
FAMILIES: dict[str, tuple[str, ...]] = {
    "lossless": (
        "lossless",
        "lossless_draft_q",
        "greedy",
        "block",
        "traversal",
        "sps",
        "sps_draft_q",
        "eagle",
        "eagle2",
        "eagle3",
        "medusa",
        "pld",
        "lookahead",
        "early_exit",
    ),
    "MARS": ("mars", "mars_sampling", "mars_released"),
    "FSD": ("fsd", "r_fuzzy"),
    "ARC-Decode": ("arc", "arc_released"),
    "DropMatch": ("dropmatch", "dropmatch_naive", "dropout_head", "either", "autojudge_dropmatch"),
    "typical": ("typical", "entropy_verify"),
    "threshold": ("threshold", "near_top", "relaxed_topk"),
    "judge": ("judge", "autojudge"),
    "coarse": ("coarse_grained",),
    "random": ("random",),
    PLAIN: ("ar",),
    OTHER: (),
}
"""Family -> its rules, and the methods that bring one of them. Every other rule is of the last
family."""
COLOURS = dict(
    zip(
        FAMILIES,
        (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, OLIVE, WINE, BROWN, GREY, INK, INDIGO),
        strict=True,
    )
)
MARKERS = dict(
    zip(FAMILIES, ("o", "s", "^", "D", "v", "P", "X", "<", "h", "d", "*", ">"), strict=True)
)
_OF = {rule: family for family, rules in FAMILIES.items() for rule in rules}


def family(rule: str) -> str:
    return _OF.get(rule, OTHER)


def looks(axis: Iterable[Entry]) -> dict[str, Look]:
    """Label -> look of each entry of an axis."""
    rules: dict[str, str] = {}
    for entry in axis:
        rules[entry.label] = rules.get(entry.label) or entry.rule
    return looks_of(rules)


def looks_of(rules: Mapping[str, str]) -> dict[str, Look]:
    """Name of a series -> its look, by its rule; by its place where no series has a rule. The first
    of a family has the family's marker, the others the markers that are left; each has the next
    line style and hatch. More of one family than there are line styles have colours of their own,
    those that no other family of the figure has."""
    if not any(rules.values()):
        return {name: look(place) for place, name in enumerate(rules)}
    families = {name: family(rule) for name, rule in rules.items()}
    spare_markers = [marker for of, marker in MARKERS.items() if of not in families.values()]
    spare_markers = [*spare_markers, *MARKERS.values()]
    others = {COLOURS[of] for of in families.values()}
    spare_colours = cycle(colour for colour in BY_PLACE if colour not in others)
    crowded = {of for of, count in Counter(families.values()).items() if count > len(DASHES)}
    seen: Counter[str] = Counter()
    by_name: dict[str, Look] = {}
    further = 0
    for name, of in families.items():
        number = seen[of]
        seen[of] += 1
        marker, colour = MARKERS[of], COLOURS[of]
        if number > 0:
            marker = spare_markers[further % len(spare_markers)]
            further += 1
            if of in crowded:
                colour = next(spare_colours)
        place = list(FAMILIES).index(of) + number
        dash, hatch = DASHES[place % len(DASHES)], HATCHES[place % len(HATCHES)]
        by_name[name] = Look(colour, marker, dash, hatch)
    return by_name
