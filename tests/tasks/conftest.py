from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tasks.sandbox.run import run_job

CASES = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Programs whose time no test is about have as much as a loaded machine may take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run_job.__kwdefaults__, "timeout_s", 600.0)
        yield
