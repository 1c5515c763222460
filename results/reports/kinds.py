"""The kinds of reports that a YAML in conf/report can describe; its key `kind` selects one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from results.reports.scales import with_editions
from results.reports.spec import FigureSpec, TableSpec

AnyReport = TableSpec | FigureSpec
_ADAPTER: TypeAdapter[AnyReport] = TypeAdapter(Annotated[AnyReport, Field(discriminator="kind")])


def parse_report(section: Mapping[str, Any]) -> AnyReport:
    """Validate a report's YAML, its editions filled in. Raises ValidationError, whose locations begin with the
    kind; ValueError for a name that conf/scale does not have."""
    return _ADAPTER.validate_python(with_editions(section))


def report_keys(kind: str) -> Iterable[str]:
    """The keys that a report of this kind may have; none for an unknown kind."""
    models = get_args(AnyReport)
    return next((model.model_fields for model in models if kind in get_args(model.model_fields["kind"].annotation)), ())
