"""A report's table as Markdown, LaTeX (booktabs), CSV (long) and an HTML fragment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from results.reports.grid import Grid
from results.reports.spec import ReportSpec
from results.reports.table import Cell, Row, Table, lay_out

TEMPLATES = Environment(
    loader=PackageLoader("results.reports"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "−": "$-$", "–": "--", "·": r"$\cdot$",
    "τ": r"$\tau$", "θ": r"$\theta$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "≤": r"$\leq$", "≥": r"$\geq$",
    "→": r"$\to$", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
})


def render_table(spec: ReportSpec, grid: Grid, out_dir: str | Path) -> list[Path]:
    """Write <name>.md, .tex, .csv and .html (a fragment) into `out_dir` and return their paths."""
    table = lay_out(spec, grid)
    made = {"md": markdown(table), "tex": latex(table), "csv": long_csv(table), "html": html(table)}
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{spec.name}.{suffix}" for suffix in made]
    for path, text in zip(paths, made.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def markdown(table: Table) -> str:
    """A heading, the table, its caption, its notes and what it comes to."""
    several = len(table.values) > 1
    header = [*table.stub, *(f"{c} · {value.name}" if several else c for c in table.columns for value in table.values)]
    lines = [[*stub, *(_marked(text) for cell in row.cells for text in texts(cell))] for stub, row in stubs(table)]
    escaped = [[text.replace("|", r"\|") for text in line] for line in [header, *lines]]
    align = ["left"] * len(table.stub) + ["right"] * (len(header) - len(table.stub))
    frame = pd.DataFrame(escaped[1:], columns=escaped[0])
    body = frame.to_markdown(index=False, colalign=align, disable_numparse=True)
    notes = "\n".join(f"{_raised(i)} {note}  " for i, note in enumerate(table.notes))
    found = "\n".join(f"- {finding}" for finding in table.findings)
    return "\n\n".join(part for part in (f"### {table.spec.title}", body, table.caption, notes, found) if part) + "\n"


def latex(table: Table) -> str:
    """A table environment for the package booktabs."""
    width, stub = len(table.values), len(table.stub)
    starts = [stub + 1 + i * width for i in range(len(table.columns))]
    axes, columns = [_tex(axis) for axis in table.stub], [_tex(column) for column in table.columns]
    if width > 1:
        head = [
            " & ".join([*[""] * stub, *(rf"\multicolumn{{{width}}}{{c}}{{{column}}}" for column in columns)]) + r" \\",
            "".join(rf"\cmidrule(lr){{{start}-{start + width - 1}}}" for start in starts),
            " & ".join([*axes, *(_tex(value.name) for _ in columns for value in table.values)]) + r" \\",
        ]
    else:
        head = [" & ".join([*axes, *columns]) + r" \\"]
    body: list[str] = []
    for labels, row in stubs(table):
        if body and stub > 1 and labels[0]:
            body.append(r"\midrule")
        body += _tex_lines(labels, [text for cell in row.cells for text in texts(cell)])
    notes = [rf"\textsuperscript{{{i + 1}}}~{_tex(note)}" for i, note in enumerate(table.notes)]
    caption = ". ".join([*(_tex(part) for part in (table.spec.title, table.caption) if part), *notes])
    return "\n".join([
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering", r"\small", r"\setlength{\tabcolsep}{3.5pt}",
        rf"\caption{{{caption}.}}", rf"\label{{tab:{table.spec.name}}}",
        rf"\begin{{tabular}}{{{'l' * stub}{'r' * width * len(columns)}}}", r"\toprule",
        *head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ])


def long_csv(table: Table) -> str:
    """One line a value: report, the axes, value_name, value, ci_low, ci_high, n, failed_prompts, state, reason,
    published, difference. Values stand in the summary's units (shares and accuracies as fractions)."""
    lines = [
        {
            "report": table.spec.name, **cell.at, "value_name": number.of.metric, "value": number.value,
            "ci_low": number.interval and number.interval[0], "ci_high": number.interval and number.interval[1],
            "n": cell.n, "failed_prompts": cell.failed_prompts, "state": cell.state, "reason": cell.reason,
            "published": number.published, "difference": number.difference,
        }
        for row in table.rows for cell in row.cells if cell.state != "absent" for number in cell.numbers
    ]
    return pd.DataFrame(lines).astype({"n": "Int64", "failed_prompts": "Int64"}).to_csv(index=False)


def html(table: Table) -> str:
    """A <figure> with the table, its caption and its notes; classes, no styles."""
    return TEMPLATES.get_template("table.html.j2").render(table=table, stubs=stubs, texts=texts)


class Text(NamedTuple):
    """What is printed for one value; `notes` are indices into the table's notes."""

    main: str
    interval: str = ""
    paper: str = ""
    bold: bool = False
    notes: tuple[int, ...] = ()
    state: str = "measured"


def texts(cell: Cell) -> list[Text]:
    """One text a value. Where there is no number, the word that says why: failed or missing."""
    if cell.state == "absent":
        return [Text("", state="absent") for _ in cell.numbers]
    if cell.state in ("failed", "missing"):
        return [Text(cell.state, "", number.published_text, False, cell.notes, cell.state) for number in cell.numbers]
    return [
        Text(number.text, number.interval_text, number.published_text, number.best, (*cell.notes, *number.notes))
        for number in cell.numbers
    ]


def stubs(table: Table) -> Iterator[tuple[list[str], Row]]:
    """Each row with its labels; a label that repeats the row above is blank."""
    above: tuple[str, ...] = ("",) * len(table.stub)
    for row in table.rows:
        same = next((i for i, (a, b) in enumerate(zip(above, row.labels, strict=True)) if a != b), len(above))
        yield [*[""] * same, *row.labels[same:]], row
        above = row.labels


def _marked(text: Text) -> str:
    main = f"**{text.main}**" if text.bold else text.main
    return " ".join(part for part in (main + "".join(map(_raised, text.notes)), text.interval, text.paper) if part)


def _raised(note: int) -> str:
    return str(note + 1).translate(SUPERSCRIPTS)


def _tex_lines(labels: list[str], row: list[Text]) -> list[str]:
    """A line of values and, where there are any, small lines of intervals and published numbers under it."""
    lines = [[*map(_tex, labels), *map(_tex_main, row)]]
    for parts in ([text.interval for text in row], [text.paper for text in row]):
        if any(parts):
            small = [rf"{{\tiny {_tex(part)}}}" if part else "" for part in parts]
            lines.append([*[""] * len(labels), *small])
    ends = [r" \\[-3pt]"] * (len(lines) - 1) + [r" \\[2pt]"]
    return [" & ".join(line) + end for line, end in zip(lines, ends, strict=True)]


def _tex_main(text: Text) -> str:
    main = rf"\textbf{{{_tex(text.main)}}}" if text.bold else _tex(text.main)
    marks = ",".join(str(note + 1) for note in text.notes)
    return main + (rf"\rlap{{\textsuperscript{{{marks}}}}}" if marks else "")


def _tex(text: str) -> str:
    return text.translate(LATEX)
