"""Requests to an OpenAI-compatible endpoint: retried, in one line when they fail, and without
showing key or password."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from results.store.errors import one_line

RETRIED = (408, 409, 429)
"""HTTP statuses below 500 after which the same request may succeed."""
FAULTS = (ValueError, LookupError, TypeError, RecursionError)
"""What reading a reply raises that is none: proxies report faults with status 200."""
Read = TypeVar("Read")


class NoReply(RuntimeError):
    """No attempt succeeded. The message is one line.

    status  of the last reply; None where the server cannot be reached or gave no such reply."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go.

    key      sent as the bearer's; empty: a user and a password in the URL authorise.
    retries  of refused connections, time-outs and server faults, with a wait that doubles from
             `wait_s`.
    """

    base_url: str
    key: str
    timeout_s: float
    retries: int
    wait_s: float

    def post(
        self, path: str, body: Mapping[str, Any], what: str, read: Callable[[httpx.Response], Read]
    ) -> Read:
        """What `read` makes of the reply, which should be a `what`. Raises NoReply. Redirects are
        not followed: the key is for this host alone."""
        reason, status = "", None
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.wait_s * 2 ** (attempt - 1))
            try:
                reply = httpx.post(**self.address(path), json=body, timeout=self.timeout_s)
            # ValueError, ImportError: a proxy that is none
            except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
                reason, status = self.redacted(one_line(error) or type(error).__name__), None
                continue
            if reply.is_success:
                try:
                    return read(reply)
                except FAULTS:
                    reason, status = f"not a {what}: {self.redacted(reply.text)}", None
                    continue
            status = reply.status_code
            reason = f"HTTP {reply.status_code} {self.redacted(reply.text)}"
            if reply.status_code < 500 and reply.status_code not in RETRIED:
                # the request itself is refused: sending it again would not help
                break
        raise NoReply(reason, status)

    def address(self, path: str) -> dict[str, Any]:
        """Where a request goes, and its header."""
        url = httpx.URL(self.base_url)
        if self.key:
            url = url.copy_with(userinfo=b"")
        before, _, query = url.raw_path.partition(b"?")
        raw = before.rstrip(b"/") + path.encode() + (b"?" + query if query else b"")
        return {
            "url": url.copy_with(raw_path=raw),
            "headers": {"Authorization": f"Bearer {self.key}"} if self.key else {},
        }

    def redacted(self, text: str) -> str:
        """A server's text in one short line, without the key that it may echo (as it is, or as JSON
        writes it)."""
        for form in {self.key, json.dumps(self.key)[1:-1]} - {""}:
            text = text.replace(form, "(hidden)")
        return one_line(text or "nothing")[:200]
