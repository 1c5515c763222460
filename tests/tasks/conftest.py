from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.sandbox.run import run_job
from tests.helpers.tables import beside

CASES = beside(__file__, "cases.yaml")


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Programs whose time no test is about have as much as a loaded machine may take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run_job.__kwdefaults__, "timeout_s", 600.0)
        yield
