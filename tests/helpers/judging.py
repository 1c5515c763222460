"""A judge's options, and an OpenAI-compatible server in a thread of the test that answers as
one."""

from __future__ import annotations

import yaml

from bench.config.paths import CONF
from bench.config.settings import JudgeOptions
from tests.helpers.replies import Replying, Serving, chat_completion


def judge(**options) -> JudgeOptions:
    shipped = yaml.safe_load((CONF / "judge" / "default.yaml").read_text(encoding="utf-8"))
    named = {"base_url": "http://127.0.0.1:1/v1", "model": "own", "key_env": "JUDGE_KEY"}
    at_once = {"retries": 0, "wait_s": 0.0, "timeout_s": 600.0}
    return JudgeOptions(**shipped | named | at_once | options)


class Server(Serving):
    """Grades by the length of what it is asked, and of two answers takes FIRST, else the one in
    front, from `start` on: before, and after it has died, it hangs up."""

    def __init__(self):
        super().__init__(_Handler)
        self._asked = []
        self.left, self.status = 0.0, 200

    def start(self, die_after: float = float("inf")):
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

    def do_POST(self):
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
