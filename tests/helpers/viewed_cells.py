"""Made-up cells for the answer viewer: two tasks, hostile texts, a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from results.reports.answers import Group, Viewed
from results.store.cells import Store
from results.store.sample import Sample
from results.store.traces import Threshold, TraceFolder
from tests.helpers.synthetic_cells import sample

HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
)
STEERING = "\x1b[31mred \u202eright to left"
WORDS = ["<b>", " the", " a", "\n", HOSTILE, STEERING, " مرحبا", "😀", " four", " 4"]
"""Text of each token id."""
CYCLES = {"committed": [3, 2, 2], "accepted": [2, 1, 2]}
"""Of every answer of eight tokens; the answer ends within its last cycle."""
POSITIONS = pd.read_csv(Path(__file__).with_suffix(".csv"))
"""Of its trace."""
EVERYWHERE = {
    "top1": 1,
    "top2": 2,
    "p2": 0.05,
    "inside": True,
    "outside": False,
    "p": 0.5,
    "u": 0.25,
}


def texts(ids) -> list[str]:
    return [WORDS[token] for token in ids]


def answer(name: str, ids, score: float | None, cycles: bool = True) -> Sample:
    alone = {"committed": [1] * (len(ids) - 1)}
    return sample(
        name,
        ids,
        **(CYCLES if cycles else alone),
        score=score,
        nll=0.5 * len(ids),
        answer=f"<i>{score}",
        texts=["".join(texts(ids))],
    )


def traces(folder: Path, samples: list[Sample]) -> TraceFolder:
    """A trace of these samples: three cycles, of which the first rejected a proposal."""
    store = TraceFolder(Store(folder).cell("traced"))
    columns = [
        {
            "prompt": one.id,
            "turn": 0,
            "token": np.array([*one.output_ids[1:3], 9, *one.output_ids[3:]]),
            "accept": (POSITIONS["clause"] != "rejected").to_numpy(),
            **{name: np.array(column.tolist()) for name, column in POSITIONS.items()},
            **{name: np.full(len(POSITIONS), value) for name, value in EVERYWHERE.items()},
        }
        for one in samples
    ]
    store.add([one.id for one in samples], columns, Threshold("theta", ">", 0.5))
    return store


def group(folder: Path, key: str = "base", n: int = 6, cells: int = 3) -> Group:
    """A baseline, a traced method and others that differ from it, over `n` prompts."""
    names = [f"<p>{i:03}" for i in range(n)]
    plain = [
        answer(name, [0, 1, 2, 3, 4, 5, 6, 7], float(i % 2), cycles=False)
        for i, name in enumerate(names)
    ]
    viewed = [Viewed(key, "ar", True, plain)]
    for number in range(1, cells):
        samples = [
            answer(name, [0, 1, 2, 3, 8 + i % 2, 5, 6, 7], float(i % 3 == 0))
            for i, name in enumerate(names)
        ]
        held = traces(folder / key, samples) if number == 1 else None
        viewed.append(Viewed(f"{key}-{number}", f"method <{number}>", False, samples, held))
    prompts = {
        name: [("system", "be <brief>"), ("user", f"question {i}: {HOSTILE}")]
        for i, name in enumerate(names)
    }
    return Group(f"task <{key}>", "pair made up", viewed, prompts, texts)
