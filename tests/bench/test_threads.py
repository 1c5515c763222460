"""engine.threads=null is a measured number."""

from __future__ import annotations

import pytest
import torch

from bench.run import model_pool


@pytest.mark.parametrize(("most", "quick"), [(6, 4), (6, 6), (6, 1), (1, 1)])
def test_the_quickest_number_of_threads(most: int, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that runs by the threads in use: `quick` of them take one second, others two."""
    used, clock, tried = 1, 0.0, []

    def use(count: int) -> None:
        nonlocal used
        used = count
        tried.append(count)

    def work(*_: object) -> None:
        nonlocal clock
        clock += 1.0 if used == quick else 2.0

    monkeypatch.setattr(torch, "set_num_threads", use)
    monkeypatch.setattr(torch, "bmm", work)
    monkeypatch.setattr(model_pool.time, "perf_counter", lambda: clock)
    assert model_pool.quickest_threads.__wrapped__(most) == quick
    assert set(tried) <= {1, 2, 4, 6} and (most == 1 or {1, 2, 4, 6} == set(tried))
