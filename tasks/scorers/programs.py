"""What the scorers that run a model's code share: in which sandbox, and under which limits."""

from __future__ import annotations

from pydantic import Field

from tasks.base import TaskError
from tasks.sandbox import run as sandbox
from tasks.sandbox.run import Mode, Outcome, SandboxError
from tasks.scorers.base import Scorer


class Programs(Scorer):
    """timeout_s: wall time of one program. sandbox: `bubblewrap`; `limits`, resource limits without namespaces (see
    tasks/sandbox/run.py), only where somebody asks for it."""

    timeout_s: float = Field(5.0, gt=0)
    memory_mb: int = Field(1024, ge=64)
    sandbox: Mode = "bubblewrap"

    def check(self) -> None:
        try:
            sandbox.check(self.sandbox)
        except SandboxError as error:
            hint = "; task.scorer.sandbox=limits runs the code under resource limits alone, if you want that"
            raise TaskError(f"{error}{hint if self.sandbox == 'bubblewrap' else ''}") from error

    def run(self, program: str) -> Outcome:
        return sandbox.run_python(
            program, timeout_s=self.timeout_s, memory_mb=self.memory_mb, require=self.sandbox)
