"""Small stores with known numbers, for files that others read."""

from __future__ import annotations

from pathlib import Path

from results.store.cells import Store
from results.store.sample import Timed, TimedRun
from tests.helpers.synthetic_cells import sample

TEXTS = ["first answer", "second"]


def exact_match(config: object) -> tuple[str, bool]:
    """The score of every cell here."""
    return "exact_match", True


def two_turn_store(root: Path) -> Store:
    """An autoregressive cell and a MARS cell of three prompts of two turns; two of them timed. MARS takes two cycles in
    the first turn (1 + 2 + 2 tokens) and one in the second (1 + 2)."""
    store = Store(root)
    config = {"pair": {"name": "tiny", "target": "/home/user/models/target"}, "rule": {"name": "lossless"},
              "drafter": {"name": "none"}, "task": {"name": "made_up"}, "decoding": {"temperature": 1.0},
              "draft": {"length": 4}, "seed": 0, "baseline": "tiny-ar-made_up"}
    shared = {"texts": TEXTS, "finish": ["eos", "length"], "turn_tokens": [5, 3],
              "prompt_tokens": 9, "answer": "42"}
    plain = [sample(f"p{i}", range(8), committed=[1] * 6, accepted=[0] * 6, score=float(i > 0), **shared)
             for i in range(3)]
    drafted = [sample(f"p{i}", range(8), committed=[2, 2, 2], accepted=[1, 1, 2], score=float(i % 2), relaxed=1,
                      details={"strict": 1.0}, flags={"wide": i}, **shared) for i in range(3)]
    clock = [Timed(f"p{i}", TimedRun(8, 3, 0.25, 0.5 + i), TimedRun(8, 6, 0.25, 1.5 + i), "host-name", "boot",
                   "2026-01-02T03:04:05+00:00") for i in range(2)]
    alone = [Timed(one.id, one.runs[1], None, one.host, one.boot, one.started) for one in clock]
    arms = {"tiny-ar-made_up": (config, plain, alone),
            "tiny-mars-made_up": ({**config, "rule": {"name": "mars", "theta": 0.9}, "drafter": {"name": "model"}},
                                  drafted, clock)}
    for key, (settings, samples, timed) in arms.items():
        cell = store.cell(key)
        with cell.lock():
            cell.write_config(settings)
            cell.write_environment({"argv": ["/home/user/bench/__main__.py"], "git": {"commit": "abc"},
                                    "packages": {"torch": "2.13.0"}})
            for one in samples:
                cell.append(one)
            for run in timed:
                cell.append_timed(run)
    return store
