"""An LLM as a judge, over any OpenAI-compatible endpoint: its options and one request. The key comes from the
environment alone."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from bench.config.errors import one_line
from bench.config.judge_options import Judge


class JudgeError(RuntimeError):
    """The endpoint cannot be used. The message is one line."""


def ask(judge: Judge, body: Mapping[str, Any]) -> str:
    """The judge's reply. Refused connections, time-outs and the server's faults are tried again. Raises JudgeError, and
    ConfigError for a key that cannot be sent; neither shows the key."""
    url = f"{judge.base_url.rstrip('/')}/chat/completions"
    key, reason = judge.key(), ""
    for attempt in range(judge.retries + 1):
        if attempt:
            time.sleep(judge.wait_s * 2 ** (attempt - 1))
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")  # for this host, not where it points to
        try:
            with urllib.request.urlopen(request, timeout=judge.timeout_s) as answer:
                said = answer.read()
            try:
                return _content(json.loads(said))
            except (ValueError, LookupError, TypeError, RecursionError):  # proxies report faults with status 200
                reason = f"not a chat completion: {_shown(said.decode(errors='replace'), key)}"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {_shown(error.read().decode(errors='replace'), key)}"
            if error.code < 500 and error.code not in (408, 409, 429):
                break  # the request itself is refused: the same again would be too
        except (OSError, http.client.HTTPException) as error:  # no connection, a reply that breaks off
            reason = _shown(one_line(error), key)
    raise JudgeError(f"judge.base_url={judge.base_url}: no reply from {judge.model} ({reason}); what was judged is "
                     "kept, the same command goes on")


def _content(completion: Any) -> str:
    """The text of a chat completion; empty where the model gave none. Raises LookupError, TypeError."""
    content = completion["choices"][0]["message"]["content"]
    if not isinstance(content, str | None):
        raise TypeError(f"content must be text, got {type(content).__name__}")
    return content or ""


def _shown(said: str, key: str) -> str:
    """What a server said, in one short line, without the key that it may echo (as it is, or as JSON writes it)."""
    for form in {key, json.dumps(key)[1:-1]} - {""}:
        said = said.replace(form, "(hidden)")
    return one_line(said or "nothing")[:200]
