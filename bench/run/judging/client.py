"""One request to an LLM judge behind an OpenAI-compatible endpoint. Neither API key nor password is shown."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from results.store.reasons import one_line
from results.store.redaction import redacted

if TYPE_CHECKING:
    from bench.config.settings import Judge

RETRIED = (408, 409, 429)
"""HTTP statuses below 500 after which the same request may succeed."""


class JudgeError(RuntimeError):
    """The endpoint cannot be used. The message is one line."""


def ask(judge: Judge, body: Mapping[str, Any]) -> str:
    """The judge's reply to one request body.

    Refused connections, time-outs and server faults are retried, with a wait that doubles. Raises JudgeError when no
    attempt succeeds, ValueError for a key that cannot be sent; neither shows the key."""
    key, reason = judge.key(), ""
    for attempt in range(judge.retries + 1):
        if attempt:
            time.sleep(judge.wait_s * 2 ** (attempt - 1))
        try:
            with urllib.request.urlopen(_request(judge, body, key), timeout=judge.timeout_s) as response:
                payload: bytes = response.read()
            try:
                return _content(json.loads(payload))
            except (ValueError, LookupError, TypeError, RecursionError):  # proxies report faults with status 200
                reason = f"not a chat completion: {_redacted(payload, key)}"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {_redacted(error.read(), key)}"
            if error.code < 500 and error.code not in RETRIED:
                break  # the request itself is refused: sending it again would not help
        except (OSError, http.client.HTTPException) as error:  # no connection, or a reply that breaks off
            reason = _redacted(one_line(error).encode(), key)
    raise JudgeError(f"judge.base_url={redacted(judge.base_url or '')}: no reply from {judge.model} ({reason}); "
                     "replies so far are kept, re-running the same command resumes judging")


def _request(judge: Judge, body: Mapping[str, Any], key: str) -> urllib.request.Request:
    url = urlsplit(judge.base_url or "")
    user, _, host = url.netloc.rpartition("@")
    whole = url._replace(netloc=host, path=f"{url.path.rstrip('/')}/chat/completions").geturl()
    request = urllib.request.Request(whole, json.dumps(body).encode(), {"Content-Type": "application/json"})
    authorization = f"Bearer {key}" if key else f"Basic {b64encode(unquote(user).encode()).decode()}" if user else ""
    if authorization:
        request.add_unredirected_header("Authorization", authorization)  # for this host, not where it redirects to
    return request


def _content(completion: Any) -> str:
    """The text of a chat completion; empty where the model gave none. Raises LookupError, TypeError."""
    content = completion["choices"][0]["message"]["content"]
    if not isinstance(content, str | None):
        raise TypeError(f"content must be text, got {type(content).__name__}")
    return content or ""


def _redacted(payload: bytes, key: str) -> str:
    """A server's text in one short line, without the key that it may echo (as it is, or as JSON writes it)."""
    text = payload.decode(errors="replace")
    for form in {key, json.dumps(key)[1:-1]} - {""}:
        text = text.replace(form, "(hidden)")
    return one_line(text or "nothing")[:200]
