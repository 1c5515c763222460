"""How many CPU threads the clock uses."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

import torch

from methods.engine.clock import DEFAULT_THREADS

if TYPE_CHECKING:
    from bench.config.engine import Engine

LEAD, TRIALS, PAUSE_S = 1.1, 3, 0.5
"""How many times quicker fewer threads must be to be taken, in how many trials, and the seconds between two of them."""


def use_threads(engine: Engine) -> int:
    """Set the number of CPU threads of this process, as engine.threads asks; null: the quickest number. Returns it."""
    torch.set_num_threads(engine.threads or quickest_threads(DEFAULT_THREADS))
    return torch.get_num_threads()


@cache
def quickest_threads(most: int) -> int:
    """The number of CPU threads for a clock: `most`, unless fewer, a power of two, are quicker by `LEAD` in each of
    `TRIALS` trials. Noise of a tenth of a second on a busy core must not choose the number for a whole session."""
    quickest = []
    for trial in range(TRIALS):
        time.sleep(PAUSE_S if trial else 0.0)
        seconds = _seconds(most)
        quickest.append(min(seconds, key=seconds.__getitem__))
        if seconds[quickest[-1]] * LEAD > seconds[most]:
            return most
    return max(quickest)


def _seconds(most: int) -> dict[int, float]:
    """Number of threads, a power of two or `most` -> the least time of five, in seconds, to multiply 32 MB of weights
    with a few tokens. The numbers take turns; all of it takes a tenth of a second or so."""
    counts = sorted({most, *(1 << power for power in range(most.bit_length()) if 1 << power <= most)})
    weights, tokens = torch.zeros(8, 1024, 1024), torch.zeros(8, 8, 1024)
    seconds = dict.fromkeys(counts, float("inf"))
    for count in counts * 5 if len(counts) > 1 else []:
        torch.set_num_threads(count)
        began = time.perf_counter()
        torch.bmm(tokens, weights)
        seconds[count] = min(seconds[count], time.perf_counter() - began)
    return seconds
