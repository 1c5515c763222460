"""Requests to an OpenAI-compatible endpoint. They are retried. A failure is told in one line that
shows neither key nor password."""

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
UNREADABLE = (ValueError, LookupError, TypeError, RecursionError)
"""What `read` raises for a reply that is not what was asked for. Its status may be 200: that is how
some proxies report their own faults."""
LONGEST_REASON = 200
"""Characters of a server's text that a message quotes."""
Read = TypeVar("Read")


class NoReply(RuntimeError):
    """No attempt succeeded. The message is one line.

    status  of the last reply, where that was an error; None where the server cannot be reached, or
            where its reply was not what was asked for."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and how often and how long it is asked.

    base_url   the part of the URL before the path of a request; a query stays behind that path.
    key        sent as the bearer token, and a user and password in the URL are not. Empty: they
               are.
    timeout_s  seconds of one attempt.
    retries    attempts after the first: after connections that fail, time-outs, faults of the
               server (`RETRIED`, 500 and above) and replies that cannot be read.
    wait_s     seconds before the first of them; the wait doubles each time.
    """

    base_url: str
    key: str
    timeout_s: float
    retries: int
    wait_s: float

    def post(
        self, path: str, body: Mapping[str, Any], what: str, read: Callable[[httpx.Response], Read]
    ) -> Read:
        """Send `body` as JSON; return what `read` makes of the reply. Raises NoReply.

        `what` names the reply that is asked for, in messages: "chat completion". `read` raises one
        of `UNREADABLE` for another reply. Redirects are not followed: the key is for this host
        alone."""
        reason, status = "", None
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.wait_s * 2 ** (attempt - 1))
            try:
                reply = httpx.post(**self.address(path), json=body, timeout=self.timeout_s)
            # ValueError, ImportError: a proxy, say, that the environment names and httpx cannot use
            except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
                reason, status = self.redacted(one_line(error) or type(error).__name__), None
                continue
            if reply.is_success:
                try:
                    return read(reply)
                except UNREADABLE:
                    reason, status = f"not a {what}: {self.redacted(reply.text)}", None
                    continue
            status = reply.status_code
            reason = f"HTTP {reply.status_code} {self.redacted(reply.text)}"
            if reply.status_code < 500 and reply.status_code not in RETRIED:
                # the request itself is refused: sending it again would not help
                break
        raise NoReply(reason, status)

    def address(self, path: str) -> dict[str, Any]:
        """The arguments `url` and `headers` of `httpx.post` for a path that begins with "/"."""
        url = httpx.URL(self.base_url)
        if self.key:
            url = url.copy_with(userinfo=b"")
        base, _, query = url.raw_path.partition(b"?")
        raw_path = base.rstrip(b"/") + path.encode()
        if query:
            raw_path += b"?" + query
        return {
            "url": url.copy_with(raw_path=raw_path),
            "headers": {"Authorization": f"Bearer {self.key}"} if self.key else {},
        }

    def redacted(self, text: str) -> str:
        """A server's text in one short line, without the key, which it may echo."""
        in_json = json.dumps(self.key)[1:-1]  # without the quotation marks
        for form in {self.key, in_json} - {""}:
            text = text.replace(form, "(hidden)")
        return one_line(text or "nothing")[:LONGEST_REASON]
