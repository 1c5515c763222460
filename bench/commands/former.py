"""Former names of commands: each says in one line what to run instead."""

import sys

from results.store.reasons import USAGE_ERROR

_TRAIN = "python -m bench.train"
FORMER = {
    "train_pair": "it is now python -m models.tiny.train pair",
    "train_heads": f"it is now {_TRAIN} heads",
    "train_judge": f"it is now {_TRAIN} judge",
    "answers": f"it is now {_TRAIN} answers",
    "calibrate": f"it is now {_TRAIN} calibrate",
    "vs_transformers": "it is now python -m bench.speed",
    "microbench": "python -m bench.cost to=FILE.yaml measures a cost profile, python -m bench.gpu a GPU; 0.2 was the "
                  "last version that had the table of one pair",
    "model_card": "python -m bench.margins pair=NAME writes how sure any target is, python -m models.tiny.train card "
                  "the card of the embedded pair",
    "compare": "0.2 was the last version that had it; python -m bench.exchange to=parquet writes what two stores hold "
               "(docs/scale.md compares them)",
}
"""bench.NAME -> what to do."""

if __name__ == "__main__":
    name = __spec__.name
    print(f"error: {name}: no such command; {FORMER[name.removeprefix('bench.')]}", file=sys.stderr)
    sys.exit(USAGE_ERROR)
