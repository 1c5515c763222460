"""`python -m results.store.filling STORE PLACE COUNT`: read every COUNTth cell of a store, from the PLACEth, into its
index. `Index` starts one for each core where most of a large store is not in the index yet."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from results.store.cells import Store
from results.store.index import BATCH


def main(argv: Sequence[str]) -> None:
    """Read the cells that the index lacks. What cannot be read or written, the process that asked finds too."""
    root, place, count = argv
    keys = [cell.key for cell in Store(root).cells()[int(place)::int(count)]]
    for first in range(0, len(keys), BATCH):
        for _ in Store(root).entries(keys[first:first + BATCH]):  # a new store: memory does not grow with the cells
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
