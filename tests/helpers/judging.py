"""A judge's options, and an OpenAI-compatible server in a thread of the test that answers as
one."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from bench.config.settings import JudgeOptions


def judge(**options) -> JudgeOptions:
    given = {
        "base_url": "http://127.0.0.1:1/v1",
        "model": "own",
        "key_env": "JUDGE_KEY",
        "prompts": None,
        "references": None,
        "language_penalty": None,
        "against": "reference",
        "temperature": 0.0,
        "max_tokens": 64,
        "timeout_s": 600.0,
        "retries": 0,
        "wait_s": 0.0,
    }
    return JudgeOptions(**{**given, **options})


class Server(ThreadingHTTPServer):
    """Grades by the length of what it is asked, and of two answers takes FIRST, else the one in
    front, from `start` on: before, and after it has died, it hangs up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self._asked: list[dict] = []
        self.left, self.status = 0.0, 200
        Thread(target=self.serve_forever, daemon=True).start()

    def start(self, die_after: float = float("inf")) -> None:
        """Answer; after `die_after` replies die in the middle of the next one, as a killed process
        does."""
        self.left = die_after

    def asked(self) -> list[dict]:
        """What was replied to: path, key and body."""
        return self._asked

    def reply(self, request: dict) -> bytes:
        self._asked.append(request)
        asked = request["messages"][-1]["content"]
        compares = request["messages"][0]["content"] == "Rank."
        said = (
            ("M" if "FIRST" in asked.split(", M ")[-1] else "m")
            if compares
            else f"I read {len(asked)} characters. Rating: [[{len(asked) % 10 + 1}]]"
        )
        return json.dumps(
            {"choices": [{"message": {"role": "assistant", "content": said}}]}
        ).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body, self.server.left = (
            json.loads(self.rfile.read(int(self.headers["Content-Length"]))),
            self.server.left - 1,
        )
        if self.server.left < -1:
            return
        dies = self.server.left < 0
        content = (
            b'{"choices": ['
            if dies
            else self.server.reply(
                {"path": self.path, "key": self.headers.get("Authorization"), **body}
            )
        )
        self.send_response(self.server.status)
        self.send_header(
            "Location", f"http://localhost:{self.server.server_port}/elsewhere"
        )  # read at a redirect
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000" if dies else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
