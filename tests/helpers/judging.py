"""A judge's options, and an OpenAI-compatible server in a thread of the test that answers as
one."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from threading import Thread

from bench.config.settings import JudgeOptions
from tests.helpers.replies import Replying, chat_completion


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
        said = f"I read {len(asked)} characters. Rating: [[{len(asked) % 10 + 1}]]"
        if request["messages"][0]["content"] == "Rank.":
            said = "M" if "FIRST" in asked.split(", M ")[-1] else "m"
        return chat_completion(said)


class _Handler(Replying):
    server: Server

    def do_POST(self) -> None:
        body = self.asked()
        self.server.left -= 1
        if self.server.left < -1:
            return
        elsewhere = f"http://localhost:{self.server.server_port}/elsewhere"  # read at a redirect
        if self.server.left < 0:
            self.reply(b'{"choices": [', self.server.status, Content_Length=1000)
        else:
            request = {"path": self.path, "key": self.headers.get("Authorization"), **body}
            self.reply(self.server.reply(request), self.server.status, Location=elsewhere)
