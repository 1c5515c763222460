"""The answers of a store as a site: written into a folder, or served on the loopback address while a run goes on."""

from __future__ import annotations

import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

from bench.reports.render import write_page
from bench.reports.viewer import groups_of_stored, stored_cells
from results.metrics.so_far import SoFar
from results.store.json_text import json_text

if TYPE_CHECKING:
    from results.store.cells import CellFolder, Store

HOST = "127.0.0.1"
FILES = ("samples.jsonl", "timed.jsonl", "summary.json")
"""What changes while a cell is measured."""


def write_site(store: Store, folder: Path, live: bool = False) -> Path:
    """Write <folder>/index.html over all cells of a store, with what belongs to it. Returns its path. Raises
    StoreError."""
    groups = groups_of_stored(stored_cells(store), store)
    records = [record for cell in store.cells() if (record := cell.environment()) is not None]
    latest = max(records, key=lambda record: str(record["since"]), default={})
    environment = {key: value for key, value in latest.items() if key != "earlier"}
    return write_page(folder, [], environment, groups, listed=True, live=live)


def progress(store: Store) -> dict[str, Any]:
    """How far each cell is: answers, those asked for (where its summary says so), tokens, τ, whether it is complete."""
    return {"time": time.time(), "cells": [_progress_of(cell) for cell in store.cells()]}


def _progress_of(cell: CellFolder) -> dict[str, Any]:
    so_far, summary = SoFar.of(cell.good_samples()), cell.summary()
    return {"key": cell.key, "answers": so_far.answers, "tokens": so_far.tokens, "tau": so_far.tau,
            "asked": None if summary is None else summary.asked, "complete": summary is not None}


def serve(store: Store, port: int) -> None:
    """Serve the site on the loopback address until Ctrl-C. The page is written again for a request after the store has
    changed. Raises ValueError for a port that is taken."""
    with TemporaryDirectory() as folder:
        site = Site(store, Path(folder))
        try:
            server = ThreadingHTTPServer((HOST, port), partial(Handler, site, directory=folder))
        except OSError as error:
            raise ValueError(f"port={port}: cannot be used: {error.strerror}; give another, or 0 for any") from error
        with server:
            print(f"http://{HOST}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
            server.serve_forever()


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

    def __init__(self, site: Site, *args: Any, **options: Any) -> None:
        self.site = site
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """One request."""
        if self.headers.get("Host", "").partition(":")[0] not in (HOST, "localhost"):
            return self.send_error(403, "ask by the address that bench.view printed")
        if self.path == "/favicon.ico":  # browsers ask for one by themselves
            return self._send(204, "")
        if self.path == "/live.json":
            return self._send(200, self.site.progress())
        if self.path == "/":
            self.site.refresh()
        return super().do_GET()

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
