"""Every way a command can be wrong becomes one line: which key, which value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
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
NEAREST = 3
"""Names that an error proposes where it does not give all."""


class ConfigError(ValueError):
    """A command that cannot run. The message is one line."""


class NotHere(ConfigError):
    """A part that the pair at hand does not have, an option that its rule does not have, or a data
    file. A report leaves such points out and goes on."""


def unknown_key(key: str, allowed: Iterable[str], *, what: str = "unknown key") -> str:
    """`rule.thetta: unknown key; did you mean rule.theta? Allowed: rule.indicator, …`. All keys are
    given in full; of names that a choice lists, as report=list does, only the nearest."""
    if key in RENAMED:
        return f"{key}: is now {RENAMED[key]}"
    tails = {re.split("[.=]", full)[-1]: full for full in sorted(allowed)}
    near = [tails[tail] for tail in get_close_matches(re.split("[.=]", key)[-1], tails, n=NEAREST)]
    if "=" in key and (listing := tails.get("list")):
        hint = f"; did you mean {' or '.join(near)}? " if near else "; "
        return f"{key}: {what}{hint}{listing} shows all"
    hint = f"; did you mean {near[0]}? Allowed: " if near else "; allowed: "
    return f"{key}: {what}{hint}{', '.join(tails.values()) or 'none'}"


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
