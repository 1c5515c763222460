"""The process of vLLM as this one sees it: calls over a pipe (`bench.run.vllm.server`)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from bench.config.vllm_here import PROJECT, PYTHON
from bench.run.pool import Died
from methods.engine.source import ModelError

ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
               "VLLM_LOGGING_LEVEL": "WARNING", "TOKENIZERS_PARALLELISM": "false"}
END_S = 10.0
"""Seconds that a process may take to end by itself."""


class EngineProcess:
    """One engine of vLLM in its own process and environment, as `bench.run.pool.Process`; a task is a call of
    `bench.run.vllm.server`. Raises ModelError, Died where the engine cannot be loaded."""

    def __init__(self, variables: Mapping[str, str], load: Mapping[str, Any]) -> None:
        """`load`: the arguments of the server's call of that name."""
        self._log = tempfile.NamedTemporaryFile("w+", prefix="leeway-vllm-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "bench.run.vllm.server"], cwd=PROJECT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, env={**ENVIRONMENT, **os.environ, **variables,
                                                           "PYTHONPATH": str(PROJECT)}, start_new_session=True)
        try:
            self.send({"call": "load", **load})
            self.receive()
        except (EOFError, OSError):
            death = self.died()
            self.end()
            raise death from None
        except ModelError:
            self.end()
            raise

    def send(self, task: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The result of the call. Raises ModelError with the line that the other side gives, EOFError."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise EOFError
        reply = json.loads(line)
        if "error" in reply:
            raise ModelError(f"engine=vllm: {self._cause(reply['error'])}")
        return reply["ok"]

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def died(self) -> Died:
        code = self._process.wait()
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        hint = "; is there enough memory?" if code == -9 else ""
        return Died(f"engine=vllm: its process {self._process.pid} ended ({cause}){hint}{self._last_error()}", cause)

    def end(self) -> None:
        """End the process and free its memory."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._log.close()

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
