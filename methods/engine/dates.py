"""The day that a chat template prints: one that is fixed, so that a prompt is the same tomorrow.

Templates read the clock by `strftime_now(format)`, which transformers gives them (Llama 3.2, gpt-oss, Granite); Llama's
print `date_string` where it is given."""

from __future__ import annotations

import json
import logging
import re
from datetime import date, datetime
from functools import cache
from typing import Any

from methods.engine.source import ModelError

log = logging.getLogger(__name__)
DEFAULT = date(2024, 7, 26)
"""What Llama's templates print without a clock."""
CALL = re.compile(r"""strftime_now\s*\(\s*(?:format\s*=\s*)?(["'])(.*?)\1\s*\)""", re.DOTALL)


def fixed(source: str, template: Any, day: date | None) -> dict[str, Any]:
    """What `apply_chat_template` is given so that `source`'s chat template prints `day`, at midnight; nothing for one
    that prints no date. Says once which day it prints where none is given. Raises ModelError for a `day` that the
    template does not print, and for a template that reads the clock in another way."""
    text = template if isinstance(template, str) else ""
    reads_clock, takes_date = CALL.search(text) is not None, "date_string" in text
    without = CALL.sub("", text)
    if re.search(r"strftime_now\s*\(", without):
        raise ModelError(f"{source}: its chat template calls strftime_now with something other than a text, so its "
                         "date cannot be fixed; give pair.chat_template=FILE with a date of its own")
    if day is not None and not (reads_clock or takes_date):
        raise ModelError(f"{source}: task.date={day}: its chat template prints no date; leave task.date out")
    if not reads_clock:
        return {} if day is None else {"date_string": day.strftime("%d %b %Y")}
    if day is None:
        _say(source)
    at = datetime.combine(day or DEFAULT, datetime.min.time())
    return {"chat_template": CALL.sub(lambda call: json.dumps(at.strftime(call[2])), text)}


@cache
def _say(source: str) -> None:
    log.warning("%s: its chat template prints the date, and is given %s; task.date=YYYY-MM-DD gives it another", source,
                DEFAULT)
