"""A judge's options, and a server of its own process that answers as one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench.config.judge_options import Judge

SERVER = Path(__file__).with_name("judge_server.py")


def judge(**options) -> Judge:
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "own", "key_env": "JUDGE_KEY", "prompts": None,
             "references": None, "mode": None, "language_penalty": None, "against": "reference", "temperature": 0.0,
             "max_tokens": 64, "timeout_s": 20.0, "retries": 0, "wait_s": 0.0}
    return Judge(**{**given, **options})


class Server:
    """The judge's process; `start` begins it (again)."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "asked.jsonl"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.process: subprocess.Popen | None = None

    def start(self, die_after: int | None = None) -> None:
        words = [str(self.port), str(self.log), *([] if die_after is None else [str(die_after)])]
        self.process = subprocess.Popen([sys.executable, str(SERVER), *words])
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("the judge's server did not start")

    def asked(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
