"""engine.threads=null takes all CPU threads unless fewer are clearly quicker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bench.run import models as model_pool


class Machine:
    """A clock that runs by the threads in use: `seconds` of a product, from the number of threads and of the trial."""

    def __init__(self, seconds: Callable[[int, int], float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.used, self.trial, self.clock, self.seconds = 1, 0, 0.0, seconds
        self.tried: set[int] = set()
        monkeypatch.setattr(torch, "set_num_threads", self.use)
        monkeypatch.setattr(torch, "bmm", self.work)
        monkeypatch.setattr(model_pool.time, "perf_counter", lambda: self.clock)
        monkeypatch.setattr(model_pool.time, "sleep", self.wait)

    def use(self, count: int) -> None:
        self.used = count
        self.tried.add(count)

    def work(self, *_: object) -> None:
        self.clock += self.seconds(self.used, self.trial)

    def wait(self, seconds: float) -> None:
        self.trial += seconds > 0


@pytest.mark.parametrize(("most", "quick"), [(6, 4), (6, 6), (6, 1), (1, 1)])
def test_the_quickest_number_of_threads(most: int, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda used, _: 1.0 if used == quick else 2.0, monkeypatch)
    assert model_pool.quickest_threads.__wrapped__(most) == quick
    assert machine.tried == ({1, 2, 4, 6} if most > 1 else set())


def test_a_small_lead_is_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(lambda used, _: {1: 1.0, 2: 1.05}[used], monkeypatch)
    assert model_pool.quickest_threads.__wrapped__(2) == 2
