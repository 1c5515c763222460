"""Shared by the scorers that run a model's code: sandbox mode and limits."""

from __future__ import annotations

import logging

from pydantic import Field

from tasks.base import TaskError
from tasks.sandbox import run as sandbox
from tasks.sandbox.run import Job, Mode, ProgramResult, SandboxError
from tasks.scorers.base import Scorer

log = logging.getLogger(__name__)


class Programs(Scorer):
    """Limits of the programs.

    timeout_s  wall time of one program, seconds.
    memory_mb  memory of one program, MiB.
    sandbox    `bubblewrap`, or `limits`: resource limits without namespaces (see tasks/sandbox/run.py).
    """

    timeout_s: float = Field(5.0, gt=0)
    memory_mb: int = Field(1024, ge=64)
    sandbox: Mode = "bubblewrap"

    def check(self) -> None:
        """Raise TaskError if programs cannot run in this mode here; warn about what the mode does not isolate."""
        try:
            exposure = sandbox.exposure(self.sandbox)
        except SandboxError as error:
            hint = "; task.scorer.sandbox=limits runs the code under resource limits alone, if you want that"
            raise TaskError(f"{error}{hint if self.sandbox == 'bubblewrap' else ''}") from error
        if exposure is not None:
            log.warning("task.scorer.sandbox=%s: %s", self.sandbox, exposure)

    def run(self, job: Job) -> ProgramResult:
        """Run a program with its tests. Raises SandboxError if the machine failed, not the program."""
        return sandbox.run_job(job, timeout_s=self.timeout_s, memory_mb=self.memory_mb, require=self.sandbox)
