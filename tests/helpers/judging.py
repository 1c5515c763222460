"""A judge's options, and a server of its own process that answers as one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.config.settings import Judge

SERVER = Path(__file__).with_name("judge_server.py")


def judge(**options) -> Judge:
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "own", "key_env": "JUDGE_KEY", "prompts": None,
             "references": None, "mode": None, "language_penalty": None, "against": "reference", "temperature": 0.0,
             "max_tokens": 64, "timeout_s": 20.0, "retries": 0, "wait_s": 0.0}
    return Judge(**{**given, **options})


class Server:
    """The judge's process; `start` begins it (again)."""

    def __init__(self, folder: Path, port: int) -> None:
        self.log, self.port = folder / "asked.jsonl", port
        self.url = f"http://127.0.0.1:{port}/v1"
        self.process: subprocess.Popen | None = None

    def start(self, die_after: int | None = None) -> None:
        words = [str(self.port), str(self.log), *([] if die_after is None else [str(die_after)])]
        self.process = subprocess.Popen([sys.executable, str(SERVER), *words], stdout=subprocess.PIPE)
        assert self.process.stdout and self.process.stdout.readline(), "the judge's server did not start"

    def asked(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
