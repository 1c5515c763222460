"""The first thing that a worker process imports: it sets up the process before torch is imported."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

from results.store.reasons import log_to_stderr


def prepare(variables: Mapping[str, str]) -> None:
    """Set environment variables, which torch reads when it is imported, and end this process with its parent."""
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends its workers
    log_to_stderr()
    from bench.run.quality_pass.processes import end_with_parent

    threading.Thread(target=end_with_parent, daemon=True).start()
