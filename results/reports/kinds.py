"""The kinds of reports that a YAML in conf/report can describe; its key `kind` selects one. One on batches shows what
part `cycle` of `python -m bench.gpu` measured, machine by machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from results.reports.axes import Frozen
from results.reports.scales import with_editions
from results.reports.spec import FigureSpec, TableSpec

if TYPE_CHECKING:
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


AnyReport = TableSpec | FigureSpec | Serving
_ADAPTER: TypeAdapter[AnyReport] = TypeAdapter(Annotated[AnyReport, Field(discriminator="kind")])


def parse_report(section: Mapping[str, Any]) -> AnyReport:
    """Validate a report's YAML, its editions filled in. Raises ValidationError, whose locations begin with the
    kind; ValueError for a name that conf/scale does not have."""
    return _ADAPTER.validate_python(with_editions(section))


def report_keys(kind: str) -> Iterable[str]:
    """The keys that a report of this kind may have; none for an unknown kind."""
    models = get_args(AnyReport)
    return next((model.model_fields for model in models if kind in get_args(model.model_fields["kind"].annotation)), ())
