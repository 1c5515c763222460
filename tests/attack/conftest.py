from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.conftest import no_clock  # noqa: F401  for these tests too
from tests.helpers.commands import run
from tests.helpers.stores import decoded


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two cells and their baseline."""
    folder = tmp_path_factory.mktemp("measured")
    done = run(
        "bench",
        "-m",
        "method=sps,mars_sampling",
        "n=3",
        "decoding.max_new_tokens=8",
        "timed=0",
        "engine.threads=1",
        f"output.dir={folder}",
    )
    assert done.status == 0 and len(decoded(folder / "store")) == 3, done.err
    return folder / "store"
