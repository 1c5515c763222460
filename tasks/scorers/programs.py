"""Shared by the scorers that run a model's code: its limits, and whether programs can be run here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.sandbox.run import Job, bubblewrap_fault, run_job
from tasks.scorers.base import Scorer


class Programs(Scorer):
    """Limits of the programs.

    timeout_s  wall time of one program, seconds.
    memory_mb  memory of one program, MiB.
    sandbox    what isolates them; its only value stands in the identity of every stored cell.
    """

    timeout_s: float = Field(5.0, gt=0)
    memory_mb: int = Field(1024, ge=64)
    sandbox: Literal["bubblewrap"] = "bubblewrap"

    def unscorable(self) -> str | None:
        return bubblewrap_fault()

    def run(self, job: Job) -> str | None:
        """None where a program passes its tests, else why not. Raises SandboxError if the machine failed."""
        return run_job(job, timeout_s=self.timeout_s, memory_mb=self.memory_mb)
