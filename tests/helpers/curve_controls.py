"""`python -m tests.helpers.curve_controls STORE`: write tests/golden/curve_controls.csv from the cells of a store.

It holds what the split of Δτ sums, for 512 prompts of mini_gsm on the embedded pair: lossless EAGLE-3 over the curve's
temperatures (repeat 0), and at four others with other random numbers (repeat 1), the negative controls.

    M='pair=tiny drafter=eagle3 drafter.total=16 drafter.depth=6 draft.length=7 rule=lossless task=mini_gsm n=512
       decoding.max_new_tokens=32 timed=0 store.dir=STORE'
    python -m bench -m $M decoding.temperature=0,0.2,0.4,0.55,0.7,0.85,1
    python -m bench -m $M decoding.temperature=0.3,0.5,0.62,0.92 repeat=1
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import yaml

from results.metrics.curve import Counts
from results.store.sample import Sample, read_records

FILE = Path(__file__).parents[1] / "golden" / "curve_controls.csv"
CURVE, CONTROLS = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0), (0.3, 0.5, 0.62, 0.92)
Key = tuple[str, float, int]
"""plain or lossless, temperature, repeat"""


def counts() -> dict[Key, Counts]:
    """The counts of each cell; a plain one took no cycle, a lossless one of the curve lends no text."""
    with FILE.open() as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, np.array(rows, float).T, strict=True))
    unknown = np.full(len(rows), np.nan)
    keys = dict.fromkeys(tuple(name.split()[:3]) for name in header)
    return {(kind, float(t), int(repeat)): Counts(*(columns.get(f"{kind} {t} {repeat} {field}", unknown)
                                                    for field in Counts._fields)) for kind, t, repeat in keys}


def main(store: Path) -> None:
    cells: dict[Key, dict[str, Sample]] = {}
    for file in store.glob("*/samples.jsonl"):
        config = yaml.safe_load((file.parent / "cell.yaml").read_text())
        kind = "plain" if config["drafter"]["name"] == "none" else "lossless"
        samples = {one.id: one for one in read_records(file, file.read_bytes()) if isinstance(one, Sample)}
        cells[kind, config["decoding"]["temperature"], config["repeat"]] = samples
    needed = {("lossless", t, 0): ("committed", "cycles") for t in CURVE}
    needed |= {("plain", t, 0): ("nll", "tokens") for t in CURVE}
    needed |= {("lossless", t, 1): ("committed", "cycles", "nll", "tokens") for t in CONTROLS}
    ids = sorted(set.intersection(*(set(cells[key]) for key in needed)))
    found = {f"{kind} {t:g} {repeat} {field}": getattr(Counts.of(cells[kind, t, repeat], ids), field)
             for (kind, t, repeat), fields in needed.items() for field in fields}
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found)
        writer.writerows([f"{value:.6g}" for value in row] for row in zip(*found.values(), strict=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
