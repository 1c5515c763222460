"""Rows in several lines, and tables in parts whose rows share no column."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from results.reports.formats import long_csv, markdown
from results.reports.layout import lay_out, lay_out_all
from tests.helpers.synthetic_cells import full_grid, table_spec


def test_a_row_in_two_lines_keeps_its_numbers() -> None:
    """As DropMatch's Table 3: one line of each kind, the same headers over both."""
    whole = table_spec(values=["speedup", "tau"], mean=None)
    split = table_spec(values=["speedup", "tau"], mean=None, lines={"fast": ["speedup"], "long": ["tau"]})
    one, two = (lay_out(spec, full_grid(spec)) for spec in (whole, split))
    assert [row.labels for row in two.rows] == [(*row.labels, line) for row in one.rows for line in ("fast", "long")]
    assert all(len(under) == 1 for under in two.columns)
    before, after = ([number.text for row in table.rows for cell in row.cells for number in cell.numbers]
                     for table in (one, two))
    assert sorted(before) == sorted(after)
    assert "| fast" in markdown(two)


@pytest.mark.parametrize("lines", [{"a": ["speedup"]}, {"a": ["speedup", "tau"], "b": ["tau"]},
                                   {"a": ["speedup"], "b": ["accuracy"]}])
def test_lines_hold_every_value_once(lines: dict[str, list[str]]) -> None:
    with pytest.raises(ValidationError, match="lines: must have as many metrics each"):
        table_spec(values=["speedup", "tau"], lines=lines)


def test_headers_one_below_the_other() -> None:
    """The numbers of a wide table, with their labels, in a row for each header that they stand under."""
    specs = [table_spec(values=["speedup", "tau"], mean=None, stacked=stacked) for stacked in (False, True)]
    grid = full_grid(specs[0])
    wide, long = (lay_out(spec, grid) for spec in specs)
    assert [row.labels for row in long.rows] == [
        (header, *row.labels) for header in wide.headers for row in wide.rows]
    assert [row.cells[0].numbers for row in long.rows] == [
        row.cells[i].numbers for i in range(len(wide.headers)) for row in wide.rows]
    assert long.stub == ("Task", *wide.stub) and long.widest == 2
    assert sorted(long_csv([long], grid).splitlines()) == sorted(long_csv([wide], grid).splitlines())
    with pytest.raises(ValidationError, match="stacked: needs 'columns', and neither 'mean' nor 'lines'"):
        table_spec(stacked=True, mean="Mean")


def test_rows_without_a_common_column_are_tables_of_their_own() -> None:
    """As DropMatch's Table 8, where speculative decoding has no threshold."""
    axes = {"Method": [{"label": "SD"}, {"label": "Judge"}, {"label": "Judge + DM"}],
            "Threshold": [{"label": "none", "only": {"Method": ["SD"]}},
                          {"label": "0.1", "only": {"Method": ["Judge", "Judge + DM"]}},
                          {"label": "0.2", "only": {"Method": ["Judge"]}}]}
    spec = table_spec(axes=axes, rows=["Method"], columns=["Threshold"], values=["tau"], mean=None, published=None)
    first, second = lay_out_all(spec, full_grid(spec))
    assert first.headers == ("none",) and [row.labels for row in first.rows] == [("SD",)]
    assert second.headers == ("Threshold 0.1", "Threshold 0.2"), "a bare number says of what"
    assert [row.labels for row in second.rows] == [("Judge",), ("Judge + DM",)]
    assert not first.caption and second.caption
    relative = {"metric": "tau", "label": "over", "over": {"Method": "Judge"}, "only": {"Method": ["Judge + DM"]}}
    ratios = table_spec(axes=axes, rows=["Method"], columns=["Threshold"], values=["speedup", relative], mean=None,
                        published=None)
    grid = full_grid(ratios)
    first, second = lay_out_all(ratios, {place: replace(held, notes=("noted",)) for place, held in grid.items()})
    assert [len(table.columns[0]) for table in (first, second)] == [1, 2], "no empty columns"
    assert "noted" in long_csv([first, second], grid).splitlines()[1], "footnotes stand under the last part"
    axes["Threshold"][0] = {"label": "none"}
    spec = table_spec(axes=axes, rows=["Method"], columns=["Threshold"], values=["tau"], mean=None, published=None)
    assert len(lay_out_all(spec, full_grid(spec))) == 1
