"""A stand-in of the Weights & Biases service on the loopback address: what the client sends is kept, by run."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Kept:
    """What the service holds of a run.

    upserts  every request that created or changed it
    history  logged rows
    summary  the last one
    files    name -> content
    """

    upserts: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


class WandbService:
    """Answers the client's requests; `failing` makes it answer 500 to everything but those of an operation named there.

    runs        id -> what is kept of it
    operations  names of all GraphQL operations, in order
    views       saved workspaces and reports
    """

    def __init__(self) -> None:
        self.runs: dict[str, Kept] = defaultdict(Kept)
        self.operations: list[str] = []
        self.views: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.failing: tuple[str, ...] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL operation."""
        entity = {"id": "e", "name": "someone"}
        project = {"id": "p", "internalId": "1", "name": "leeway", "entity": entity, "entityName": "someone",
                   "artifact": None}
        if operation == "UpsertBucket":
            run = self.runs[given["name"]]
            run.upserts.append(given)
            bucket = {"id": f"id-{given['name']}", "name": given["name"], "displayName": given.get("displayName"),
                      "description": "", "config": given.get("config") or "{}", "sweepName": None, "project": project,
                      "historyLineCount": len(run.history)}
            return {"upsertBucket": {"bucket": bucket, "inserted": len(run.upserts) == 1}}
        if operation == "RunResumeStatus":
            return {"model": {**project, "bucket": self._bucket(given["name"])}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/upload/{given['run']}/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        if operation == "CreateArtifact":
            return {"createArtifact": {"artifact": {"id": "a", "state": "COMMITTED", "artifactSequence": {
                "id": "s", "latestArtifact": {"id": "a", "versionIndex": 0}}}}}
        if operation.lower().startswith("upsertview"):
            self.views.append(given)
            view = {"id": f"view{len(self.views)}", "name": given.get("name"), "displayName": given.get("displayName"),
                    "type": given.get("type"), "spec": given.get("spec"), "description": given.get("description"),
                    "project": project, "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
                    "user": {"username": "someone", "id": "u", "name": "someone", "photoUrl": None, "admin": False,
                             "memberships": []}}
            return {"upsertView": {"view": view, "inserted": True}}
        viewer = {"id": "u", "entity": "someone", "username": "someone", "flags": "{}", "teams": {"edges": []}}
        page = {"pageInfo": {"endCursor": None, "hasNextPage": False}, "edges": [{"node": {
            **project, "createdAt": "2026-01-01T00:00:00Z", "isBenchmark": False, "user": None}}]}
        return {"viewer": viewer, "models": page, "serverInfo": {"features": []}, "model": project, "project": project}

    def _bucket(self, name: str) -> dict[str, Any] | None:
        if name not in self.runs:
            return None
        run = self.runs[name]
        tail = json.dumps([json.dumps(run.history[-1])] if run.history else [])
        return {"id": f"id-{name}", "name": name, "historyLineCount": len(run.history), "eventsLineCount": 0,
                "logLineCount": 0, "historyTail": tail, "eventsTail": "[]", "summaryMetrics": json.dumps(run.summary),
                "config": run.upserts[-1].get("config") or "{}", "tags": [], "wandbConfig": '{"t": 1}'}

    def stream(self, name: str, sent: dict[str, Any]) -> None:
        """Keep what a run's file stream sends."""
        for file, part in sent.get("files", {}).items():
            rows = [json.loads(line) for line in part["content"]]
            if file == "wandb-history.jsonl":
                self.runs[name].history[part["offset"]:] = rows
            elif file == "wandb-summary.json":
                self.runs[name].summary = rows[-1]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def __init__(self, service: WandbService, *args: Any) -> None:
        self.service = service
        super().__init__(*args)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.service.headers.append(self.headers.get("Authorization", ""))
        if self.path == "/graphql":
            asked = json.loads(body)
            operation = asked.get("operationName") or asked["query"].split("(")[0].split("{")[0].split()[-1]
            self.service.operations.append(operation)
            if self.service.failing is not None and operation not in self.service.failing:
                return self._send(500, {"error": "broken"})
            return self._send(200, {"data": self.service.answer(operation, asked.get("variables") or {})})
        if self.service.failing is not None:
            return self._send(500, {"error": "broken"})
        if self.path.endswith("/file_stream"):
            self.service.stream(self.path.split("/")[-2], json.loads(body))
        return self._send(200, {"exitcode": None, "limits": {}})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _, _, run, name = self.path.split("/", 3)
        self.service.runs[run].files[name] = body
        self._send(200, {})

    def do_GET(self) -> None:
        self._send(200, {})

    def _send(self, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept, not printed."""
