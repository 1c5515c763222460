"""Made-up cells for the answer viewer: two tasks, hostile texts, a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
COMMITTED, ACCEPTED = [3, 2, 2], [2, 1, 2]
"""Of every answer of eight tokens; the answer ends within its last cycle."""
CLAUSES = ["strict", "relaxed", "rejected", "drawn", "argmax", "drawn", "strict", "strict"]
"""The positions of its trace."""


def texts(ids) -> list[str]:
    return [WORDS[token] for token in ids]


def answer(name: str, ids, score: float | None, cycles: bool = True) -> Sample:
    committed = COMMITTED if cycles else [1] * (len(ids) - 1)
    accepted = ACCEPTED if cycles else [0] * (len(ids) - 1)
    return sample(
        name,
        ids,
        turn_tokens=[len(ids)],
        committed=committed,
        accepted=accepted,
        score=score,
        nll=0.5 * len(ids),
        answer=f"<i>{score}",
        texts=["".join(texts(ids))],
    )


def traces(folder: Path, samples: list[Sample]) -> TraceFolder:
    """A trace of these samples: three cycles, of which the first rejected a proposal."""
    store = TraceFolder(Store(folder).cell("traced"))
    columns = []
    for one in samples:
        tokens = [*one.output_ids[1:3], 9, *one.output_ids[3:]]
        numbers = {
            "p0": [0.5, 0.1, 0.01, 0.6, 0.4, 0.7, 0.9, 0.8],
            "p1": [0.5, 0.4, 0.6, 0.6, 0.4, 0.7, 0.9, 0.8],
            "q": [0.4, 0.3, 0.2, np.nan, 0.1, np.nan, 0.9, 0.9],
            "score": [0.9, 0.8, 0.1, np.nan, 0.9, np.nan, 1, 1],
        }
        columns.append(
            {
                "prompt": one.id,
                "turn": 0,
                "cycle": np.array([0, 0, 0, 0, 1, 1, 2, 2]),
                "token": np.array(tokens),
                "node": np.array([1, 2, 3, -1, 1, -1, 1, 2]),
                "parent": np.array([0, 1, 2, 2, 0, 1, 0, 1]),
                "depth": np.array([1, 2, 3, 3, 1, 2, 1, 2]),
                "clause": np.array(CLAUSES),
                "top1": np.full(8, 1),
                "top2": np.full(8, 2),
                "p2": np.full(8, 0.05),
                "accept": np.array([c != "rejected" for c in CLAUSES]),
                "inside": np.full(8, True),
                "outside": np.full(8, False),
                "p": np.full(8, 0.5),
                "u": np.full(8, 0.25),
                **{name: np.array(values, float) for name, values in numbers.items()},
            }
        )
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
