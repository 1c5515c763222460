from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.sandbox.run import run_job


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Programs whose time no test is about have as much as a loaded machine may take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(run_job.__kwdefaults__, "timeout_s", 600.0)
        yield
