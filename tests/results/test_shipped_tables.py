"""Every shipped table fits on a page, compiles with a real LaTeX, and every character that reports
use has a form in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from results.metrics.catalog import METRICS
from results.reports.formats import LATEX, latex
from results.reports.frame import lay_out_all
from results.reports.grid import Outcome
from results.reports.reading import MOST_COLUMNS, for_people
from results.reports.spec import TableSpec, parse_report
from tests.helpers.synthetic_cells import made_up, table_spec, with_values

CONF = Path(__file__).resolve().parents[2] / "conf" / "report"
DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""
AWKWARD = {
    "Model": [{"label": "ρ ≠ Δ_x & 50% {a} \\ ~ ^ # $"}],
    "Method": [{"label": "a < b | c"}, {"label": "θ ≥ τ"}],
}


def tables() -> dict[str, TableSpec]:
    """Each table of conf/report, on the embedded pair where it has an edition there."""
    sections = [yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("*.yaml"))]
    reports = [parse_report(section) for section in sections if "defaults" not in section]
    return {
        spec.name: spec.edition() if spec.has_edition((), "embedded") else spec
        for spec in reports
        if isinstance(spec, TableSpec)
    }


def test_every_shipped_table_fits_and_has_short_names() -> None:
    for name, spec in tables().items():
        for short in for_people(lay_out_all(spec, {})):
            numbers = len(short.columns)
            fits = len(short.stub) + numbers <= MOST_COLUMNS
            assert fits or numbers == 1 or short.spec.published, (name, short.spec.name)
            long = [
                entry.label
                for axis in spec.rows
                for entry in spec.axes[axis]
                if len(entry.short or entry.label) > 32
            ]
            assert not long, f"report={name}: a row needs a `short` name of up to 32 characters"


def tex(spec: TableSpec) -> str:
    """A table, every value made up and a cell failed."""
    known = {name: 0.5 for name in METRICS} | {f"{name}_ci95": (0.4, 0.6) for name in METRICS}
    whole = with_values(made_up(n=12), **known, events={"vacuous_bound": 1})
    grid = {point.coords: whole for point in spec.points()}
    grid[spec.points()[0].coords] = Outcome.failed("out of memory: 2 GiB | 50% of a_b ≈ “x”")
    return "\n".join(map(latex, lay_out_all(spec, grid)))


def drawn() -> dict[str, str]:
    """The LaTeX of each table, and of one of awkward characters."""
    awkward = table_spec(axes=AWKWARD, rows=["Model", "Method"], columns=[], mean=None)
    return {name: tex(spec) for name, spec in (tables() | {"awkward": awkward}).items()}


def test_every_character_has_a_form():
    for name, text in drawn().items():
        assert text.isascii(), (name, sorted({letter for letter in text if not letter.isascii()}))
    assert all(text.isascii() for text in LATEX.values())


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX")
def test_every_table_compiles(tmp_path: Path):
    body = "\n\\clearpage\n".join(drawn().values())
    (tmp_path / "all.tex").write_text(DOCUMENT % body, encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if line.startswith("!")]
