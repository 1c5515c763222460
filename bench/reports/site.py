"""The answers of a store as a site: written into a folder, or served on the loopback address while a run goes on."""

from __future__ import annotations

import logging
import signal
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any

from bench.reports.render import write_page
from bench.reports.viewer import groups_of_stored, stored_cells
from results.metrics.so_far import SoFar
from results.store.errors import StoreError
from results.store.json_text import json_text
from results.store.reasons import format_exception

if TYPE_CHECKING:
    from results.store.cells import CellFolder, Store

log = logging.getLogger(__name__)
HOST = "127.0.0.1"
MOST_CONNECTIONS, IDLE_S = 32, 30
"""Clients at a time, and seconds that one may be silent: a page asks for one file after the other."""
FILES = ("samples.jsonl", "timed.jsonl", "summary.json")
"""What changes while a cell is measured."""


def write_site(store: Store, folder: Path, live: bool = False) -> Path:
    """Write <folder>/index.html over all cells of a store, with what belongs to it. Returns its path. Raises
    StoreError."""
    cells = stored_cells(store)
    groups = groups_of_stored(cells, store)
    records = [record for one in cells if (record := store.cell(one.key).environment()) is not None]
    latest = max(records, key=lambda record: str(record["since"]), default={})
    environment = {key: value for key, value in latest.items() if key != "earlier"}
    return write_page(folder, [], environment, groups, listed=True, live=live)


def progress(store: Store) -> dict[str, Any]:
    """How far each cell is: answers, those asked for (where its summary says so), tokens, τ, whether it is complete; or
    `error`, why it cannot be read. `time` in seconds, of a clock that nobody sets."""
    return {"time": time.monotonic(), "cells": [_progress_of(cell) for cell in store.cells()]}


def _progress_of(cell: CellFolder) -> dict[str, Any]:
    try:
        so_far, summary = SoFar.of(cell.good_samples()), cell.summary()
    except StoreError as error:  # the other cells can be followed
        return {"key": cell.key, "error": str(error)}
    return {"key": cell.key, "answers": so_far.answers, "tokens": so_far.tokens, "tau": so_far.tau,
            "asked": None if summary is None else summary.asked, "complete": summary is not None}


def serve(store: Store, port: int) -> None:
    """Serve the site on the loopback address until Ctrl-C or SIGTERM. The page is written again for a request after the
    store has changed. Raises ValueError for a port that is taken."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the page's folder is removed
    with TemporaryDirectory() as folder:
        site = Site(store, Path(folder))
        try:
            server = Server((HOST, port), partial(Handler, site, directory=folder))
        except OSError as error:
            raise ValueError(f"port={port}: cannot be used: {error.strerror}; give another, or 0 for any") from error
        with server:
            print(f"http://{HOST}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
            server.serve_forever()


class Server(ThreadingHTTPServer):
    """Answers at most `MOST_CONNECTIONS` clients at a time; those beyond are turned away."""

    def __init__(self, *given: Any) -> None:
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*given)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As the base class does it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error; any other is one line."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            log.error("a request failed: %s", format_exception(error) if isinstance(error, Exception) else error)


class Site:
    """The site's folder, written when the store has changed since."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self._lock, self._stamp = Lock(), -1

    def refresh(self) -> None:
        """Write the page unless it shows the store as it is. Raises StoreError."""
        with self._lock:
            if (stamp := self._newest()) != self._stamp:
                write_site(self.store, self.folder, live=True)
                self._stamp = stamp

    def progress(self) -> str:
        """`progress` of the store as JSON. Raises StoreError."""
        with self._lock:
            return json_text(progress(self.store))

    def _newest(self) -> int:
        """Time of the last change of any cell, ns; 0 for an empty store."""
        files = [cell.path / name for cell in self.store.cells() for name in FILES]
        return max((file.stat().st_mtime_ns for file in files if file.is_file()), default=0)


class Handler(SimpleHTTPRequestHandler):
    """Sends the site's files, and `live.json`; only to pages that this machine opened by its own address."""

    timeout = IDLE_S

    def __init__(self, site: Site, *args: Any, **options: Any) -> None:
        self.site = site
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """One request."""
        if not self._is_ours():
            return None
        if self.path == "/favicon.ico":  # browsers ask for one by themselves
            return self._send(204, "")
        if self.path == "/live.json":
            return self._send(200, self.site.progress())
        if self.path == "/":
            try:
                self.site.refresh()
            except StoreError as error:
                return self.send_error(500, "the store cannot be read", str(error))
        return super().do_GET()

    def do_HEAD(self) -> None:
        """The headers of a file."""
        if self._is_ours():
            super().do_HEAD()

    def _is_ours(self) -> bool:
        """Whether a page of this machine asks; any other is refused."""
        if self.headers.get("Host", "").partition(":")[0] in (HOST, "localhost"):
            return True
        self.send_error(403, "ask by the address that bench.view printed")
        return False

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Nothing is kept: the next request may find another store."""
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
