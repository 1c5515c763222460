"""A headless Chromium of this machine, driven over its debugging pipe: no driver, no port, no
network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bench.config.paths import socket_folder

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-extensions",
    "--remote-debugging-pipe",
)
WAIT = 600
"""Seconds after which a page that shows nothing new is given up."""


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no browser")
    return path


class Page:
    """One tab. Every method waits until the browser has answered."""

    def __init__(self, into, out):
        self._in, self._out = os.fdopen(into, "wb", buffering=0), os.fdopen(out, "rb", buffering=0)
        self._count, self._rest = 0, b""
        self.errors: list[str] = []
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)[
                "sessionId"
            ]
        }
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol. Raises RuntimeError where the browser refuses
        it."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters, **self._session}
        self._in.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._count:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _read(self):
        while b"\0" not in self._rest:
            if not (more := self._out.read(1 << 20)):
                raise RuntimeError("the browser has ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _note(self, event):
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(
                event["params"]["exceptionDetails"]["exception"].get("description", "an exception")
            )

    def open(self, url: str):
        """Load a page and wait for its load event."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited. Raises RuntimeError where
        it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", script))
        return answer["result"].get("value")

    def wait(self, condition: str):
        """Wait until an expression is true. Raises RuntimeError after `WAIT` seconds."""
        script = (
            f"new Promise((done, fail) => {{ const end = Date.now() + {WAIT * 1000}; (function look() {{"
            f" if ({condition}) done(true); else if (Date.now() > end) fail(new Error({json.dumps(condition)}));"
            " else setTimeout(look, 20); })(); })"
        )
        self.run(script)

    def text(self, selector: str) -> str:
        """The text of the first element that a selector names, as a reader sees it."""
        return self.run(f"document.querySelector({json.dumps(selector)}).innerText")

    def click(self, selector: str):
        """Click an element, wherever the page lays it out."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def choose(self, selector: str, value: str):
        """Give a control a value, as its user would."""
        self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            f" one.value = {json.dumps(value)};"
            " for (const kind of ['input', 'change']) one.dispatchEvent(new Event(kind, {bubbles: true})); })()"
        )

    def look(self, *, width: int = 1280, media: str = ""):
        """Show the page in a window of this width, on screen or (media="print") on paper."""
        self.call("Emulation.setEmulatedMedia", media=media)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )


@contextmanager
def page() -> Iterator[Page]:
    """A tab of a browser of its own, which ends with the block."""
    with tempfile.TemporaryDirectory(dir=socket_folder(), ignore_cleanup_errors=True) as profile:
        yield from _page(profile)


def _page(profile):
    (its_in, into), (out, its_out) = os.pipe(), os.pipe()

    def wire():  # the browser reads descriptor 3 and writes 4
        os.dup2(its_in, 100)
        os.dup2(its_out, 101)
        os.dup2(100, 3)
        os.dup2(101, 4)

    process = subprocess.Popen(
        [chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        env={**os.environ, "TMPDIR": socket_folder()},
        preexec_fn=wire,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_in)
    os.close(its_out)
    try:
        yield Page(into, out)
    finally:
        process.terminate()
        process.wait()
