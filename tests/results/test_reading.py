"""The form of a table for people: few columns, short names, ± only where it is true; the full form
loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from results.reports.annotations import Note
from results.reports.columns import Column
from results.reports.formats import html, latex, markdown, markdown_of
from results.reports.frame import Table, lay_out, lay_out_all
from results.reports.reading import MOST_COLUMNS, for_people, with_few_notes
from results.reports.spec import TableSpec, parse_report
from tests.helpers.synthetic_cells import full_grid, made_up, table_spec, with_values

CONF = Path(__file__).parents[2] / "conf" / "report"
MANY = [
    "tau",
    "speedup",
    "accuracy",
    "nll",
    "accept_len",
    "tokens_per_s",
    "length_ratio",
    "tau_gain",
]


def wide(**changes) -> TableSpec:
    return table_spec(
        rows=["Model", "Task", "Method"], columns=[], mean=None, values=MANY, **changes
    )


def reading(table: Table) -> Table:
    [short] = for_people([table])
    return short


def width(text: str) -> int:
    return next(line for line in text.splitlines() if line.startswith("| ")).count("|") - 1


def test_people_see_the_named_columns_and_the_files_all() -> None:
    spec = wide(reading=["accuracy", "tau"])
    grid = full_grid(spec)
    table = lay_out_all(spec, grid)[0]
    short = markdown(reading(table))
    assert width(short) == 3 + 2 and "| Accuracy (%) |" in " ".join(short.split())
    assert "The full table also has Speedup, NLL" in reading(table).caption[0]
    assert all(
        column.header
        in latex(table).replace(r"\%", "%").replace(r"$\times$", "×").replace(r"$\tau$", "τ")
        for column in spec.values
        if "Δ" not in column.header
    )
    assert set(table.frame["value_name"]) == set(MANY)
    page = html([table])
    assert (
        page.count("<table>") == 2
        and f"All {len(MANY)} columns" in page
        and page.count("</details>") == 1
    )
    assert html([lay_out(table_spec(mean=None), full_grid(table_spec()))]).count("<table>") == 1
    with pytest.raises(ValueError, match="reading: win_rate: none of the values"):
        wide(reading=["win_rate"])


def test_footnotes_of_columns_that_are_not_shown_go_and_the_rest_are_numbered_anew() -> None:
    spec = wide(reading=["accuracy"])
    grid = full_grid(spec)
    speedy = next(iter(grid))
    grid[speedy] = with_values(grid[speedy], timed_tau=99.0)
    failing = [coords for coords in grid if coords != speedy][-1]
    grid[failing] = made_up(failed=2)
    table = lay_out(spec, grid)
    assert len(table.notes) > 1 and [note for note in reading(table).notes] == [
        "2 of 6 prompts failed and are left out"
    ]
    assert "¹" in markdown(reading(table)) and "²" not in markdown(reading(table))


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (3.84, (3.73, 3.95), "± 0.11"),
        (3.84, (3.72, 3.95), "± 0.12"),
        (1.19, (1.08, 1.34), "[1.08, 1.34]"),
        (0.0, (0.0, 0.0), ""),
        (-0.79, (-1.07, -0.51), "± 0.28"),
        (2.0, None, ""),
    ],
)
def test_half_an_interval_stands_only_for_a_symmetric_one(value, interval, text) -> None:
    column = Column.model_validate("tau_gain" if value < 0 else "tau")
    assert column.short_interval_text(value, interval) == text
    assert value > 0 or column.half_width(value, interval) is None, "near 0 the ratio says nothing"


def test_the_caption_says_what_a_short_name_stands_for() -> None:
    axes = table_spec().model_dump()["axes"]
    axes["Method"] = list(axes["Method"])
    axes["Method"][1] |= {"label": "speculative sampling with a draft model", "short": "SpS"}
    spec = table_spec(axes=axes)
    text = markdown_of(for_people([lay_out(spec, full_grid(spec))]))
    assert "| SpS " in text and "Full names: SpS = speculative sampling with a draft model." in text


def test_a_table_with_several_metrics_under_a_header_has_a_part_for_each() -> None:
    spec = table_spec(
        mean=None,
        values=[
            "accuracy",
            "tau",
            {"metric": "nll", "only": {"Task": ["mini_code"]}},
            {"metric": "distinct_2", "only": {"Task": ["GSM8K"]}},
        ],
    )
    parts = for_people([lay_out(spec, full_grid(spec))])
    assert [part.part for part in parts] == [
        "Accuracy (%)",
        "τ",
        "Distinct-2 (%): GSM8K; NLL: mini_code",
    ]
    assert parts[-1].caption and not any(part.caption or part.notes for part in parts[:-1])


def test_notes_of_one_kind_are_one_and_what_most_cells_share_is_a_line() -> None:
    spec = table_spec(mean=None, columns=[], rows=["Model", "Task", "Method"], values=["speedup"])
    grid = full_grid(spec)
    for i, coords in enumerate(grid):
        if i in (1, 2):
            grid[coords] = with_values(grid[coords], timed_tau=90.0 + i)
        notes = (Note(f"took {i}", "Settings taken", f"K = {i}"), "same everywhere")
        grid[coords] = replace(grid[coords], notes=notes[i < 2 :])
    full = lay_out(spec, grid)
    short = reading(full)
    [kind] = short.notes
    assert kind.startswith("the τ of its") and len(full.notes) > 4
    assert "Of most cells: same everywhere." in short.caption
    [taken] = [line for line in short.caption if line.startswith("Settings taken: ")]
    assert taken.count("K = ") == len(grid) - 2
    marks = short.frame["marks"].tolist()
    assert marks.count((0,)) == 2 and marks.count(()) == len(grid) - 2
    [everywhere] = with_few_notes([full], marked_all=True)
    shared = everywhere.notes.index("same everywhere")
    assert sum(shared in marks for marks in everywhere.frame["marks"]) == len(grid), (
        "LaTeX marks each cell"
    )


def test_every_shipped_table_fits_and_has_short_names() -> None:
    sections = [yaml.safe_load(path.read_text()) for path in sorted(CONF.glob("*.yaml"))]
    specs = [parse_report(section) for section in sections if "defaults" not in section]
    for spec in (spec for spec in specs if isinstance(spec, TableSpec)):
        embedded = spec.edition() if spec.has_edition((), "embedded") else spec
        for short in for_people(lay_out_all(embedded, {})):
            numbers = len(short.columns)
            fits = len(short.stub) + numbers <= MOST_COLUMNS
            assert fits or numbers == 1 or short.spec.published, (spec.name, short.spec.name)
            long = [
                entry.label
                for axis in spec.rows
                for entry in spec.axes[axis]
                if len(entry.short or entry.label) > 32
            ]
            assert not long, (
                f"report={spec.name}: a row needs a `short` name of up to 32 characters: {long}"
            )
