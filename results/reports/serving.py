"""A report on batches: what part `cycle` of `python -m bench.gpu` measured, machine by machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from results.reports.axes import Frozen

if TYPE_CHECKING:  # pandas takes half a second, which a list of reports should not cost
    import pandas as pd

COLUMNS = ("machine", "arm", "batch", "tokens/s", "first token ms", "p95 of a token ms")


class Serving(Frozen):
    """folder: of the folders that `bench.gpu` wrote, one for each machine."""

    name: str
    kind: Literal["serving"]
    title: str
    about: str = ""
    on_request: Literal[True] = True
    folder: Path

    def frame(self) -> pd.DataFrame:
        """`COLUMNS`, a row for each machine, method and number of rows. Raises ValueError, one line, where nothing was
        measured or a file is damaged."""
        import pandas as pd

        rows = [row for file in sorted(self.folder.glob("*/cycle.json")) for row in _rows(file)]
        if not rows:
            raise ValueError(f"report.folder={self.folder}: no */cycle.json with batches; run `python -m bench.gpu "
                             "parts=cycle` (docs/gpu.md)")
        return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows(file: Path) -> list[list[object]]:
    try:
        made = json.loads(min(file.parent.glob("environment_*.json")).read_text(encoding="utf-8"))
        machine = (made["accelerator"] or {}).get("name") or f"{made['cpu']['model']} (a CPU, tiny shapes)"
        return [[machine, *(row[name] for name in COLUMNS[1:])]
                for row in json.loads(file.read_text(encoding="utf-8"))["tables"].get("batches", [])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file.parent}: not a result of bench.gpu ({type(error).__name__}: {error}); remove it, or "
                         "measure again") from error
