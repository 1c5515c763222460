"""A table in its two forms: Markdown and an HTML fragment for people, the fragment with the whole
table behind a click; LaTeX (booktabs) and CSV (one line per number) with everything."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from results.reports.frame import INTERNAL, Table, lay_out_all
from results.reports.grid import Grid
from results.reports.reading import for_people, is_narrower, wholes, with_few_notes
from results.reports.spec import FigureSpec, TableSpec
from results.store.errors import printable

TEMPLATES = Environment(
    loader=PackageLoader("results.reports"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_GREEK = {
    chr(code): rf"$\{unicodedata.name(chr(code)).rpartition(' ')[2].lower()}$"
    for code in range(0x3B1, 0x3CA)
    if chr(code) not in "ος"
}
_GREEK |= {
    letter: rf"$\{unicodedata.name(letter).rpartition(' ')[2].capitalize()}$"
    for letter in "ΓΔΘΛΞΠΣΦΨΩ"
}
_RAISED = {mark: rf"\textsuperscript{{{i}}}" for i, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_LOWERED = {mark: rf"$_{{{i}}}$" for i, mark in enumerate("₀₁₂₃₄₅₆₇₈₉")}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "×": r"$\times$",
        "−": "$-$",
        "–": "--",
        "—": "---",
        "·": r"$\cdot$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "≠": r"$\neq$",
        "≈": r"$\approx$",
        "∈": r"$\in$",
        "√": r"$\surd$",
        "∞": r"$\infty$",
        "→": r"$\to$",
        "÷": r"$\div$",
        "±": r"$\pm$",
        "…": r"\ldots{}",
        "“": "``",
        "”": "''",
        "’": "'",
        "‘": "`",
        "|": r"\textbar{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "ε": r"$\varepsilon$",
        **_RAISED,
        **_LOWERED,
    }
    | {letter: text for letter, text in _GREEK.items() if letter != "ε"}
)


def render_table(spec: TableSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.md, .tex, .csv and .html (a fragment) into `out_dir` and return their paths. A
    second table of the report follows the first in each."""
    tables = lay_out_all(spec, grid)
    few = [table for parts in wholes(tables) for table in with_few_notes(parts, marked_all=True)]
    texts = {
        "md": markdown_of(for_people(tables)),
        "tex": "\n".join(map(latex, few)),
        "csv": long_csv(tables),
        "html": html(tables),
    }
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{spec.name}.{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(printable(text), encoding="utf-8")
    return paths


class Text(NamedTuple):
    """One number as it is printed.

    main          the number, or the cell's state if there is none; a dash where the column does not
                  concern the row.
    interval      its interval; empty without one.
    paper         the published number; empty without one.
    bold          whether it is the best of its column.
    notes         indices into the table's notes.
    state         measured, failed, missing, mean or absent.
    paper_notes   indices of the notes on the published number.
    verdict       what it decides, in words; in one word where people read.
    """

    main: str
    interval: str = ""
    paper: str = ""
    bold: bool = False
    notes: tuple[int, ...] = ()
    state: str = "absent"
    paper_notes: tuple[int, ...] = ()
    verdict: str = ""


def text_of(line: Any, reading: bool = False) -> Text:
    """A line of the frame as it is printed; the state, "failed" or "missing", where there is no
    number. `reading`: for people."""
    column, notes = line.column, tuple(sorted(set(line.marks)))
    value = None if line.value is None or isnan(line.value) else float(line.value)
    ends = (
        None
        if value is None or line.ci_low is None or isnan(line.ci_low)
        else (line.ci_low, line.ci_high)
    )
    paper = f"paper {line.printed}" if line.printed else ""
    if line.state in ("failed", "missing"):
        return Text(line.state, "", paper, False, notes, line.state, line.paper_marks)
    if value is None:
        return Text(line.reason or "–", "", paper, False, notes, line.state, line.paper_marks)
    paper += f" ({column.text(line.difference, signed=True)})" if paper else ""
    interval = column.short_interval_text(value, ends) if reading else column.interval_text(ends)
    decided = line.verdict.partition(",")[0] if reading else line.verdict
    return Text(
        column.text(value), interval, paper, line.best, notes, line.state, line.paper_marks, decided
    )


class Line(NamedTuple):
    """A row as it is printed: its labels, blank where they repeat the row above; whether it is a
    reference; the numbers under each header."""

    labels: list[str]
    baseline: bool
    cells: list[list[Text]]


def printed_rows(table: Table) -> list[Line]:
    """The rows from top to bottom."""
    columns, above, rows = table.columns, ("",) * len(table.stub), []
    for _, lines in table.frame.groupby("row"):
        texts = {
            (line.head, line.place): text_of(line, table.reading) for line in lines.itertuples()
        }
        heads, stub = {head for head, _ in texts}, lines["stub"].iloc[0]
        same = next(
            (i for i, (a, b) in enumerate(zip(above, stub, strict=True)) if a != b), len(above)
        )
        labels = [*[""] * same, *(table.names.get(label, label) for label in stub[same:])]
        places = [(head, table.spec.values.index(column)) for head, column in columns]
        cells = [
            [
                texts.get(place, Text("–" if place[0] in heads else ""))
                for place in places
                if place[0] == head
            ]
            for head in table.under
        ]
        rows.append(Line(labels, bool(lines["baseline"].iloc[0]), cells))
        above = stub
    return rows


def markdown_of(tables: Sequence[Table]) -> str:
    """The tables one after the other; parts of a table have one heading."""
    return "\n".join(
        markdown(table, i == 0 or table.spec.name != tables[i - 1].spec.name)
        for i, table in enumerate(tables)
    )


def markdown(table: Table, titled: bool = True) -> str:
    """A heading, the name of the part, the table, its caption, its notes and its findings."""
    headers = table.headers
    columns = [
        f"{headers[head]} · {column.header}"
        if table.widest > 1 and headers[head]
        else headers[head] or column.header
        for head, column in table.columns
    ]
    lines = [[*row.labels, *map(_markdown_text, chain(*row.cells))] for row in printed_rows(table)]
    heads, *body = [
        [_no_html(text).replace("|", r"\|") for text in line]
        for line in ([*table.stub, *columns], *lines)
    ]
    align = ["left"] * len(table.stub) + ["right"] * len(columns)
    grid = pd.DataFrame(body, columns=heads).to_markdown(
        index=False, colalign=align, disable_numparse=True
    )
    notes = "\n".join(f"{_raised([i])} {note}  " for i, note in enumerate(table.notes))
    findings = "\n".join(f"- {finding}" for finding in table.findings)
    title, part = f"### {table.spec.title}" * titled, f"**{table.part}**" * bool(table.part)
    title, part, caption, notes, findings = map(
        _no_html, (title, part, "  \n".join(table.caption), notes, findings)
    )
    return (
        "\n\n".join(text for text in (title, part, grid, caption, notes, findings) if text) + "\n"
    )


def _no_html(text: str) -> str:
    """Markdown in which no tag and no entity starts; `p < 0.05` stays as it is."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", text))


def _markdown_text(text: Text) -> str:
    main = f"**{text.main}**" if text.bold else text.main
    paper = text.paper + _raised(text.paper_notes)
    return " ".join(
        part for part in (main + _raised(text.notes), text.interval, text.verdict, paper) if part
    )


def _raised(notes: Sequence[int]) -> str:
    """The marks of notes: ³,¹¹."""
    return ",".join(str(note + 1).translate(SUPERSCRIPTS) for note in notes)


def latex(table: Table) -> str:
    """A table environment for the packages booktabs and graphicx; a wide table is scaled to the
    width of the text. Intervals, verdicts and published numbers are small print under their
    number."""
    notes = [rf"\textsuperscript{{{i + 1}}}~{_tex(note)}" for i, note in enumerate(table.notes)]
    headed = any(table.headers[head] for head in table.under)
    metric = table.columns[0][1].header if headed and table.widest == 1 else ""
    parts = [part for part in (table.spec.title, metric, *table.caption) if part]
    caption = ". ".join([*(_tex(part.rstrip(".")) for part in parts), *notes])
    axes = [_tex(axis) for axis in table.stub]
    below = [*axes, *(_tex(column.header) for _, column in table.columns)]
    if metric:
        below = [*axes, *(_tex(table.headers[head]) for head in table.under)]
    spans = [
        rf"\multicolumn{{{len(under)}}}{{c}}{{{_tex(table.headers[head])}}}"
        for head, under in table.under.items()
    ]
    lines = [[*[""] * len(axes), *spans]] if headed and not metric else []
    body: list[str] = []
    for labels, _, cells in printed_rows(table):
        body += [r"\midrule"] if body and len(labels) > 1 and labels[0] else []
        body.append(" & ".join([*map(_tex, labels), *map(_tex_cell, chain(*cells))]) + r" \\")
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table}",
            r"\centering",
            r"\small",
            r"\setlength{\tabcolsep}{3.5pt}",
            rf"\caption{{{caption}.}}",
            rf"\label{{tab:{table.spec.name}}}",
            r"\resizebox{\ifdim\width>\textwidth \textwidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{'l' * len(axes)}{'r' * len(table.columns)}}}",
            r"\toprule",
            *(" & ".join(line) + r" \\" for line in (*lines, below)),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
            "",
        ]
    )


def _tex_cell(text: Text) -> str:
    main = rf"\textbf{{{_tex(text.main)}}}" if text.bold else _tex(text.main)
    paper = _tex(text.paper) + _tex_marks(text.paper_notes)
    small = [
        rf"\\[-3pt]{{\tiny {part}}}"
        for part in (_tex(text.interval), _tex(text.verdict), paper)
        if part
    ]
    whole = main + _tex_marks(text.notes)
    return (
        rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{whole}{''.join(small)}\end{{tabular}}"
        if small
        else whole
    )


def _tex_marks(notes: Sequence[int]) -> str:
    marks = ",".join(str(note + 1) for note in notes)
    return rf"\rlap{{\textsuperscript{{{marks}}}}}" if marks else ""


def _tex(text: str) -> str:
    return text.translate(LATEX)


def long_csv(tables: Sequence[Table]) -> str:
    """One line per number: report, the axes, value_name, value, its interval and how that was made,
    its relative half-width, whether it is best, the verdict; n and the conditions of the
    measurement; state, reason, footnotes, published, difference, printed (the published number as
    the paper prints it), published_notes. Numbers are in the summary's units (shares and accuracies
    as fractions)."""
    lines = [
        line for table in tables for line in table.frame.drop(columns=INTERNAL).to_dict("records")
    ]
    frame = pd.DataFrame(lines).astype({"n": "Int64", "failed_prompts": "Int64"})
    return plain_csv(frame)


def plain_csv(frame: pd.DataFrame, digits: str | None = None) -> str:
    """A CSV file in which a spreadsheet finds no formula."""
    texts = {
        str(name): frame[name].map(spreadsheet_text)
        for name in frame.select_dtypes(exclude="number")
    }
    return (
        frame.assign(**texts)
        .rename(columns=spreadsheet_text)
        .to_csv(index=False, float_format=digits)
    )


def spreadsheet_text(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula, behind an apostrophe; anything else, and
    a text that is a number, as it is."""
    return (
        f"'{value}"
        if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
        else value
    )


def html(tables: Sequence[Table], titled: bool = False) -> str:
    """A <figure> for each table, with its caption and its notes; classes, no styles. All but the
    first have a heading, with `titled` that too. Where the short form leaves out columns, the whole
    table is behind a click."""
    template = TEMPLATES.get_template("table.html.j2")
    fragments = []
    for i, parts in enumerate(wholes(tables)):
        whole = [part for part in with_few_notes(parts) if is_narrower(part)]
        short = for_people(parts)
        for j, table in enumerate(short):
            fragments.append(
                template.render(
                    table=table,
                    whole=whole if j == len(short) - 1 else (),
                    titled=j == 0 and (titled or i > 0),
                    printed_rows=printed_rows,
                )
            )
    return "\n".join(fragments)


DIGITS = "%.5g"
"""Of traced quantities: logits of float32 models have not many more."""


def figure_csv(spec: FigureSpec, frame: pd.DataFrame) -> str:
    """The lines of a figure's frame, but for what only helps to draw it."""
    if (
        helpers := set(spec.figure.helpers()) - set(spec.figure.metrics())
    ) and "value_name" in frame:
        frame = frame[~frame["value_name"].isin(helpers)]
    whole = frame.columns.intersection(["n", "seed", "repeats"])
    frame = frame.drop(columns=["place", "unjudged"], errors="ignore").astype(
        dict.fromkeys(whole, "Int64")
    )
    return printable(plain_csv(frame, DIGITS if spec.trace else None))
