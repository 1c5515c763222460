"""Every way a command can be wrong becomes one line: which key, which value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

WORDS = {
    "Input should be": "must be",
    "String should match pattern": "must match",
    "Path does not point to a file": "no such file",
    "greater than or equal to": "≥",
    "less than or equal to": "≤",
    "greater than": ">",
    "less than": "<",
    "a valid boolean, unable to interpret input": "true or false",
    ", unable to parse string as a number": "",
    ", unable to parse string as an integer": "",
    "a valid number": "a number",
    "a valid integer": "an integer",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "True, False or 'auto'": "true, false or auto",
}
RENAMED = {"output.keep": "output.archive"}
"""Old key -> its name."""
LISTED = 10
"""Names that an error gives at most."""


LEAST = 2
"""Letters of a name that others may hold by chance."""
SURE = 0.8
"""Likeness of two names that only a slip of the hand parts: `mars_fig4` and `mars_fgi4`."""


class ConfigError(ValueError):
    """A command that cannot run. The message is one line."""


class NotHere(ConfigError):
    """A part that the pair at hand does not have, an option that its rule does not have, or a data
    file. A report leaves such points out and goes on."""


def unknown_key(
    key: str,
    allowed: Iterable[str],
    *,
    what: str = "unknown key",
    elsewhere: Iterable[str] = (),
) -> str:
    """`rule.thetta: unknown key; did you mean rule.theta? Allowed: rule.indicator, …`: all names
    where they are few, else the nearest. `elsewhere`: full keys of other sections, one of which
    may end in this name, as rule.theta does for theta."""
    if key in RENAMED:
        return f"{key}: is now {RENAMED[key]}"
    name, names = _tail(key), {_tail(full): full for full in sorted(allowed)}
    near = nearest(name, names)
    shallow_last = sorted(elsewhere, key=lambda full: (full.count("."), full), reverse=True)
    others = {_tail(full): full for full in shallow_last}
    if name in others:
        best = others[name]
    elif near:
        best = names[near[0]]
    else:
        best = next((others[other] for other in get_close_matches(name, others, 1, SURE)), "")
    if len(names) <= LISTED:
        more = f"allowed: {', '.join(names.values()) or 'none'}"
    else:
        shown = ", ".join(other for other in near if names[other] != best)
        more = "; ".join(filter(None, [shown and f"near: {shown}", _where(key, names)]))
    if not best:
        return f"{key}: {what}; {more}"
    more = more.replace("allowed:", "Allowed:", 1).replace("near:", "Near:", 1)
    return f"{key}: {what}; did you mean {best}? {more}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """The names most like this one, at most LISTED: first those that begin with it, in order, then
    those that hold it, then those that differ in few letters."""
    known = sorted(names)
    begin = [other for other in known if name and other.startswith(name)]
    hold = [other for other in known if len(name) > LEAST and name in other]
    alike = get_close_matches(name, known, n=LISTED)
    if alike and SequenceMatcher(None, alike[0], name).ratio() > SURE:
        begin.insert(0, alike[0])
    return list(dict.fromkeys([*begin, *hold, *alike]))[:LISTED]


def _tail(key: str) -> str:
    return re.split("[.=]", key)[-1]


def _where(key: str, names: Mapping[str, str]) -> str:
    """Where all names are listed."""
    section, dot, _ = key.partition(".")
    if "list" in names:
        return f"{names['list']} shows all"
    if dot and "=" not in section:
        return f"conf/{section} explains all"
    return f"`python -m bench --help{'' if '=' in section else '-all'}` lists all"


def format_validation(
    error: ValidationError, section: str, allowed: Iterable[str], plain: Any
) -> str:
    """All complaints of pydantic about one section's values, `plain`, in one line."""
    return "; ".join(
        _complaint(item, _keys(item, plain), section, allowed) for item in error.errors()
    )


def _keys(item: Any, plain: Any) -> list[str]:
    """The location of a complaint without the tags of discriminated unions, which are no keys,
    whether or not a key has the name of a tag: a figure has a `figure`."""
    keys = []
    is_tagged = False
    for part in item["loc"]:
        is_mapping = isinstance(plain, Mapping)
        if is_mapping and part == plain.get("kind") and not is_tagged:
            is_tagged = True
            continue
        is_absent = item["type"] == "missing" and part == item["loc"][-1]
        if is_mapping and part not in plain and not is_absent:
            continue
        keys.append(str(part))
        plain = plain.get(part) if is_mapping else None
    return keys


def refuse_booleans(plain: Mapping[str, Any], validated: BaseModel, section: str) -> None:
    """Raise ConfigError for true and false where a number belongs: pydantic takes them for 1 and
    0."""
    for key, value in plain.items():
        if isinstance(value, bool) and type(getattr(validated, str(key), None)) in (int, float):
            raise ConfigError(
                f"{section}{section and '.'}{key}: must be a number, not true or false"
            )


def _complaint(item: Any, location: Sequence[str], section: str, allowed: Iterable[str]) -> str:
    prefix = f"{section}." if section else ""
    key = prefix + ".".join(location)
    if item["type"] == "extra_forbidden":
        if len(location) > 1:
            return f"{key}: unknown key"
        return unknown_key(key, (prefix + name for name in allowed))
    if item["type"] == "union_tag_invalid":
        name = item["ctx"]["discriminator"].strip("'")
        return (
            f"{key}.{name}={item['ctx']['tag']}: unknown; allowed: {item['ctx']['expected_tags']}"
        )
    if item["type"] == "missing":
        return f"{key}: missing; give {key}=VALUE"
    # pydantic's own words name a class of pathlib, which moved in Python 3.13
    text = "must be a path" if item["type"] == "path_type" else item["msg"]
    text = text.removeprefix("Value error, ")
    for words, sign in WORDS.items():
        text = text.replace(words, sign)
    if not location:
        return f"{section}: {text}"
    return f"{key}={'null' if item['input'] is None else item['input']}: {text}"
