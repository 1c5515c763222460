"""A table in its two forms: Markdown and an HTML fragment for people, the fragment with the whole table behind a click;
LaTeX (booktabs), CSV (one line per number) and JSON with everything."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from results.metrics.trace_metrics import quantities
from results.reports.captions import INTERVAL_OF_MEAN
from results.reports.conditions import Conditions, columns_of
from results.reports.figures import Traced
from results.reports.grid import Grid, outcome
from results.reports.layout import lay_out_all
from results.reports.reading import for_people, is_narrower, wholes, with_few_notes
from results.reports.spec import FigureSpec, TableSpec
from results.reports.table import Cell, Number, Row, Table
from results.store.errors import printable

if TYPE_CHECKING:
    import pandas as pd


TEMPLATES = Environment(
    loader=PackageLoader("results.reports"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)
FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_GREEK = {chr(code): rf"$\{unicodedata.name(chr(code)).rpartition(' ')[2].lower()}$" for code in range(0x3B1, 0x3CA)
          if chr(code) not in "ος"}
_GREEK |= {letter: rf"$\{unicodedata.name(letter).rpartition(' ')[2].capitalize()}$" for letter in "ΓΔΘΛΞΠΣΦΨΩ"}
_RAISED = {mark: rf"\textsuperscript{{{i}}}" for i, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_LOWERED = {mark: rf"$_{{{i}}}$" for i, mark in enumerate("₀₁₂₃₄₅₆₇₈₉")}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "−": "$-$", "–": "--", "—": "---",
    "·": r"$\cdot$", "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "≈": r"$\approx$", "∈": r"$\in$", "√": r"$\surd$",
    "∞": r"$\infty$", "→": r"$\to$", "÷": r"$\div$", "±": r"$\pm$", "…": r"\ldots{}", "“": "``", "”": "''", "’": "'",
    "‘": "`", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "ε": r"$\varepsilon$", **_RAISED,
    **_LOWERED} | {letter: text for letter, text in _GREEK.items() if letter != "ε"})


def render_table(spec: TableSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.md, .tex, .csv, .json and .html (a fragment) into `out_dir` and return their paths. A second table
    of the report follows the first in each."""
    tables = lay_out_all(spec, grid)
    few = [table for parts in wholes(tables) for table in with_few_notes(parts)]
    texts = {"md": markdown_of(for_people(tables)), "tex": "\n".join(map(latex, few)),
             "csv": long_csv(tables, grid), "json": as_json(tables, grid), "html": html(tables)}
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{spec.name}.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(printable(text), encoding="utf-8")
    return paths


class Text(NamedTuple):
    """One number as it is printed.

    main          the number, or the cell's state if there is none.
    interval      its interval; empty without one.
    paper         the published number; empty without one.
    bold          whether it is the best of its column.
    notes         indices into the table's notes.
    state         measured, failed, missing or absent.
    paper_notes   indices of the notes on the published number.
    verdict       whether a score is worse than the baseline's, in words; empty for other metrics. In one word where
                  people read.
    """

    main: str
    interval: str = ""
    paper: str = ""
    bold: bool = False
    notes: tuple[int, ...] = ()
    state: str = "measured"
    paper_notes: tuple[int, ...] = ()
    verdict: str = ""


def cell_texts(cell: Cell, reading: bool = False) -> list[Text]:
    """One text per number; the state, "failed" or "missing", where there is no number. `reading`: for people."""
    return [_number_text(cell, number, reading) for number in cell.numbers]


def _number_text(cell: Cell, number: Number, reading: bool) -> Text:
    if cell.state == "absent" or number.absent:
        return Text("" if cell.state == "absent" else "–", state="absent")
    if cell.state in ("failed", "missing"):
        return Text(cell.state, "", number.published_text, False, cell.notes, cell.state, number.paper_notes)
    interval = number.short_interval_text if reading else number.interval_text
    verdict = number.verdict.partition(",")[0] if reading else number.verdict
    notes = tuple(sorted({*cell.notes, *number.notes}))
    return Text(number.text, interval, number.published_text, number.best, notes,
                paper_notes=number.paper_notes, verdict=verdict)


def row_texts(row: Row, reading: bool = False) -> list[Text]:
    return [text for cell in row.cells for text in cell_texts(cell, reading)]


def labelled_rows(table: Table) -> Iterator[tuple[list[str], Row]]:
    """Each row with its labels as they are printed; a label that repeats the row above is blank."""
    above: tuple[str, ...] = ("",) * len(table.stub)
    for row in table.rows:
        same = next((i for i, (a, b) in enumerate(zip(above, row.labels, strict=True)) if a != b), len(above))
        yield [*[""] * same, *(table.names.get(label, label) for label in row.labels[same:])], row
        above = row.labels


def markdown_of(tables: Sequence[Table]) -> str:
    """The tables one after the other; parts of a table have one heading."""
    return "\n".join(markdown(table, i == 0 or table.spec.name != tables[i - 1].spec.name)
                     for i, table in enumerate(tables))


def markdown(table: Table, titled: bool = True) -> str:
    """A heading, the name of the part, the table, its caption, its notes and its findings."""
    columns = [f"{header} · {column.header}" if table.widest > 1 and header else header or column.header
               for header, under in zip(table.headers, table.columns, strict=True) for column in under]
    lines = [[*labels, *map(_markdown_text, row_texts(row, table.reading))] for labels, row in labelled_rows(table)]
    heads, *body = [[_no_html(text).replace("|", r"\|") for text in line] for line in ([*table.stub, *columns], *lines)]
    align = ["left"] * len(table.stub) + ["right"] * len(columns)
    import pandas as pd  # takes half a second, which a dry run should not cost

    grid = pd.DataFrame(body, columns=heads).to_markdown(index=False, colalign=align, disable_numparse=True)
    notes = "\n".join(f"{_raised([i])} {note}  " for i, note in enumerate(table.notes))
    findings = "\n".join(f"- {finding}" for finding in table.findings)
    lines_under = "  \n".join(table.caption)
    title, part = f"### {table.spec.title}" * titled, f"**{table.part}**" * bool(table.part)
    title, part, caption, notes, findings = map(_no_html, (title, part, lines_under, notes, findings))
    return "\n\n".join(text for text in (title, part, grid, caption, notes, findings) if text) + "\n"


def _no_html(text: str) -> str:
    """Markdown in which no tag and no entity starts; `p < 0.05` stays as it is."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))


def _markdown_text(text: Text) -> str:
    main = f"**{text.main}**" if text.bold else text.main
    paper = text.paper + _raised(text.paper_notes)
    return " ".join(part for part in (main + _raised(text.notes), text.interval, text.verdict, paper) if part)


def _raised(notes: Sequence[int]) -> str:
    """The marks of notes: ³,¹¹."""
    return ",".join(str(note + 1).translate(SUPERSCRIPTS) for note in notes)


def latex(table: Table) -> str:
    """A table environment for the packages booktabs and graphicx; a wide table is scaled to the width of the text."""
    labels, numbers = len(table.stub), sum(map(len, table.columns))
    notes = [rf"\textsuperscript{{{i + 1}}}~{_tex(note)}" for i, note in enumerate(table.notes)]
    metric = table.columns[0][0].header if table.widest == 1 and all(table.headers) else ""
    caption = ". ".join([*(_tex(part.rstrip(".")) for part in (table.spec.title, metric, *table.caption) if part),
                         *notes])
    return "\n".join([
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}", r"\centering", r"\small", r"\setlength{\tabcolsep}{3.5pt}",
        rf"\caption{{{caption}.}}", rf"\label{{tab:{table.spec.name}}}",
        r"\resizebox{\ifdim\width>\textwidth \textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{'l' * labels}{'r' * numbers}}}", r"\toprule",
        *_tex_head(table), r"\midrule", *_tex_body(table), r"\bottomrule", r"\end{tabular}}", r"\end{table}", "",
    ])


def _tex_head(table: Table) -> list[str]:
    """One line of headers; if there are several columns under each, a second line of theirs."""
    axes, headers = [_tex(axis) for axis in table.stub], [_tex(header) for header in table.headers]
    if table.widest == 1 and all(headers):
        return [" & ".join([*axes, *headers]) + r" \\"]
    columns = [_tex(column.header) for under in table.columns for column in under]
    if not any(headers):
        return [" & ".join([*axes, *columns]) + r" \\"]
    widths = [len(under) for under in table.columns]
    starts = list(accumulate(widths, initial=len(axes) + 1))
    spans = [rf"\multicolumn{{{width}}}{{c}}{{{header}}}" for width, header in zip(widths, headers, strict=True)]
    return [
        " & ".join([*[""] * len(axes), *spans]) + r" \\",
        "".join(rf"\cmidrule(lr){{{start}-{end - 1}}}" for start, end in pairwise(starts)),
        " & ".join([*axes, *columns]) + r" \\",
    ]


def _tex_body(table: Table) -> list[str]:
    """The rows, with a rule between groups."""
    body: list[str] = []
    for labels, row in labelled_rows(table):
        if body and len(labels) > 1 and labels[0]:
            body.append(r"\midrule")
        body += _tex_lines(labels, row_texts(row))
    return body


def _tex_lines(labels: list[str], texts: list[Text]) -> list[str]:
    """A line of numbers and, if there are any, small lines of intervals, verdicts and published numbers under it."""
    lines = [[*map(_tex, labels), *map(_tex_main, texts)]]
    for parts in ([_tex(text.interval) for text in texts], [_tex(text.verdict) for text in texts],
                  [_tex(text.paper) + _tex_marks(text.paper_notes) for text in texts]):
        if any(parts):
            small = [rf"{{\tiny {part}}}" if part else "" for part in parts]
            lines.append([*[""] * len(labels), *small])
    ends = [r" \\[-3pt]"] * (len(lines) - 1) + [r" \\[2pt]"]
    return [" & ".join(line) + end for line, end in zip(lines, ends, strict=True)]


def _tex_main(text: Text) -> str:
    main = rf"\textbf{{{_tex(text.main)}}}" if text.bold else _tex(text.main)
    return main + _tex_marks(text.notes)


def _tex_marks(notes: Sequence[int]) -> str:
    marks = ",".join(str(note + 1) for note in notes)
    return rf"\rlap{{\textsuperscript{{{marks}}}}}" if marks else ""


def _tex(text: str) -> str:
    return text.translate(LATEX)


def long_csv(tables: Sequence[Table], grid: Grid) -> str:
    """One line per number: report, the axes, value_name, value, its interval and how that was made, its relative
    half-width, whether it is best, the verdict; n and the conditions of the measurement; state, reason, footnotes,
    published, difference, printed (the published number as the paper prints it), published_notes. Numbers are in the
    summary's units (shares and accuracies as fractions)."""
    lines = csv_lines(tables, grid)
    import pandas as pd  # takes half a second, which a dry run should not cost

    frame = pd.DataFrame(lines).astype({"n": "Int64", "failed_prompts": "Int64"})
    texts = {str(name): frame[name].map(spreadsheet_text) for name in frame.select_dtypes(exclude="number")}
    return frame.assign(**texts).rename(columns=spreadsheet_text).to_csv(index=False)


def csv_lines(tables: Sequence[Table], grid: Grid) -> list[dict[str, Any]]:
    """The lines of `long_csv` as data."""
    noted = [replace(table, notes=next((later.notes for later in tables[i:] if later.notes), ()))
             for i, table in enumerate(tables)]  # a table in parts has its footnotes under the last one
    return [_csv_line(table, cell, number, grid)
            for table in noted for row in table.rows for cell in row.cells if cell.state != "absent"
            for number in cell.numbers if not number.absent]


def as_json(tables: Sequence[Table], grid: Grid) -> str:
    """Each table with its title, caption, footnotes and findings, and its numbers as in the CSV file."""
    whole = [{"title": table.spec.title, "caption": table.caption, "notes": table.notes, "findings": table.findings,
              "numbers": csv_lines([table], grid)} for table in tables]
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n"


def spreadsheet_text(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula, behind an apostrophe; anything else, and a text that is a
    number, as it is."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value) else value


def _csv_line(table: Table, cell: Cell, number: Number, grid: Grid) -> dict[str, Any]:
    low, high = number.interval or (None, None)
    held = outcome(grid, tuple(cell.labels[axis] for axis in table.spec.axes)).conditions
    return {
        "report": table.spec.name, **cell.labels, "value_name": number.column.value_name, "value": number.value,
        "ci_low": low, "ci_high": high,
        "interval": _interval_kind(cell, number, held) if number.interval else None,
        "relative_half_width": number.half_width, "best": number.best, "verdict": number.verdict or None, "n": cell.n,
        "failed_prompts": cell.failed_prompts, **columns_of(held, cell.labels), "state": cell.state,
        "reason": cell.reason or number.reason,
        "notes": " | ".join(table.notes[i] for i in (*cell.notes, *number.notes)) or None,
        "published": number.published, "difference": number.difference, "printed": number.printed,
        "published_notes": "; ".join(table.notes[note] for note in number.paper_notes),
    }


def _interval_kind(cell: Cell, number: Number, held: Conditions | None) -> str:
    if cell.state == "mean":
        return INTERVAL_OF_MEAN
    return number.column.measure.estimated_by(held is None or held.proportion).words


def html(tables: Sequence[Table], titled: bool = False) -> str:
    """A <figure> for each table, with its caption and its notes; classes, no styles. All but the first have a heading,
    with `titled` that too. Where the form for people leaves out columns, the whole table is behind a click."""
    template = TEMPLATES.get_template("table.html.j2")
    fragments = []
    for i, parts in enumerate(wholes(tables)):
        whole = [part for part in with_few_notes(parts) if is_narrower(part)]
        short = for_people(parts)
        for j, table in enumerate(short):
            fragments.append(template.render(table=table, whole=whole if j == len(short) - 1 else (),
                                             titled=j == 0 and (titled or i > 0), labelled_rows=labelled_rows,
                                             cell_texts=cell_texts))
    return "\n".join(fragments)


DIGITS = "%.5g"
"""Of traced quantities: logits of float32 models have not many more."""


def render_data(spec: FigureSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.csv into `out_dir` and return its path. Numbers are in the summary's units. A figure of the meaning
    of answers has none: its numbers are drawn as they are."""
    if not (spec.figure.metrics() or isinstance(spec.figure, Traced)):
        return []
    path = Path(out_dir) / f"{spec.name}.csv"
    if isinstance(spec.figure, Traced):
        frame = _positions(spec, grid, spec.figure)
    else:
        import pandas as pd  # takes half a second, which a dry run should not cost

        frame = pd.DataFrame([line for point in spec.points() for line in _lines(spec, point.coords, grid)])
        frame = frame.astype(dict.fromkeys(frame.columns.intersection(["n", "seed", "repeats"]), "Int64"))
    texts = {str(name): frame[name].map(spreadsheet_text) for name in frame.select_dtypes(exclude="number")}
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = frame.assign(**texts).rename(columns=spreadsheet_text)
    path.write_text(printable(plain.to_csv(index=False, float_format=DIGITS if spec.trace else None)), encoding="utf-8")
    return [path]


def _lines(spec: FigureSpec, coords: tuple[str, ...], grid: Grid) -> Iterator[dict[str, Any]]:
    """The metrics of one point."""
    held = outcome(grid, coords)
    summary, fixed = held.summary, {"report": spec.name, **spec.labels(coords)}
    if summary is None:
        yield {**fixed, "state": held.state, "reason": held.reason}
        return
    around = {"n": summary.n, **columns_of(held.conditions, spec.axes), "state": held.state}
    for name in spec.figure.metrics():
        low, high = summary.interval(name) or (None, None)
        yield {**fixed, "value_name": name, "value": summary.value(name), "ci_low": low, "ci_high": high,
               **around}


def _positions(spec: FigureSpec, grid: Grid, traced: Traced) -> pd.DataFrame:
    """The positions of each view, those outside its range included."""
    frames = []
    for point in spec.points():
        held = outcome(grid, point.coords)
        for view in traced.views:
            if held.trace is None or not held.trace.exists():
                continue
            names = (view.x,) if view.y is None else (view.x, view.y)
            frame = quantities(held.trace, names, view.points == "tested")
            frames.append(frame.assign(report=spec.name, view=view.title or view.x, **spec.labels(point.coords)))
    import pandas as pd  # takes half a second, which a dry run should not cost

    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"report": []})
