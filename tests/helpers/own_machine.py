"""`python -m tests.helpers.own_machine LOCK …`: `python -m bench …` as if alone on the machine whose lock is LOCK."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.__main__ import main
from bench.run.timed_pass import machine_lock as machine

if __name__ == "__main__":
    machine.LOCK = Path(sys.argv.pop(1))
    sys.exit(main())
