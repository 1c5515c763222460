"""The process of vLLM as this one sees it: calls over a pipe (`bench.run.vllm.server`)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import Any

from bench.config.vllm_here import PROJECT, PYTHON
from methods.engine.source import ModelError

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
               "VLLM_LOGGING_LEVEL": "WARNING", "TOKENIZERS_PARALLELISM": "false"}
END_S = 10.0
"""Seconds that a process may take to end by itself."""


class EngineDied(RuntimeError):
    """vLLM's process has ended. The message is one line."""


class EngineProcess:
    """One engine of vLLM in its own process and environment, until `close` or the end of this process."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="leeway-vllm-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "bench.run.vllm.server"], cwd=PROJECT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, env={**ENVIRONMENT, **os.environ, **variables,
                                                           "PYTHONPATH": str(PROJECT)}, start_new_session=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def call(self, name: str, **arguments: Any) -> Any:
        """The result of a call. Raises EngineDied, and ModelError with the line that the other side gives."""
        pipe, replies = self._process.stdin, self._process.stdout
        assert pipe is not None and replies is not None
        try:
            pipe.write(json.dumps({"call": name, **arguments}) + "\n")
            pipe.flush()
            line = replies.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            raise EngineDied(self._obituary())
        reply = json.loads(line)
        if "error" in reply:
            raise ModelError(f"engine=vllm: {self._cause(reply['error'])}")
        return reply["ok"]

    def close(self) -> None:
        """End the process and free its memory."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _obituary(self) -> str:
        code = self._process.wait()
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        hint = "; is there enough memory?" if code == -9 else ""
        return f"engine=vllm: its process {self.pid} ended ({cause}){hint}{self._last_error()}"

    def _cause(self, reason: str) -> str:
        """vLLM starts further processes on several devices and then says only that they failed: its log knows why. It
        names its own options where memory is short."""
        cause = reason + (self._last_error() if "initialization failed" in reason else "")
        if "memory" in cause:
            return f"{cause.rstrip('.')}; here engine.cpu_cache_gib says how much on a CPU, engine.memory on a GPU"
        return cause

    def _last_error(self) -> str:
        self._log.seek(0)
        errors = [line.strip() for line in self._log if "Error" in line and "Traceback" not in line]
        return f": {errors[-1][:300]}" if errors else ""
