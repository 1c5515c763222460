"""`python -m plots modelled`: the speeds of a report's CSV, a point for each timed cell."""

from pathlib import Path

import pytest

from plots.__main__ import main, modelled
from plots.style import style

CSV = """value_name,value,pair,temperature,cell
answer_speedup,1.2,tiny,1.0,a
answer_speedup_modelled,1.3,tiny,1.0,a
answer_speedup,1.0,tiny,1.0,ar
answer_speedup_modelled,1.0,tiny,1.0,ar
answer_speedup_modelled,1.5,tiny,1.0,untimed
answer_speedup,0.9,tiny,0.0,b
answer_speedup_modelled,0.8,tiny,0.0,b
tau,3.0,tiny,0.0,b
"""


def test_each_cell_with_both_speeds_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, again = tmp_path / "one.csv", tmp_path / "again.csv"
    file.write_text(CSV)
    again.write_text(CSV)
    with style():
        figure = modelled([file, again])
    [ax] = figure.axes
    lines = [line for line in ax.lines if line.get_marker() != "None"]
    points = {line.get_label(): [*zip(*line.get_data(), strict=True)] for line in lines}
    assert points == {"tiny, T = 0": [(0.8, 0.9)], "tiny, T = 1": [(1.3, 1.2)]}, "not the target alone"
    assert main(["modelled", str(file), "--output", str(tmp_path)]) == 0
    assert (tmp_path / "modelled.png").stat().st_size > 5000 and "modelled.svg" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "value_name,value,pair,temperature,cell\ntau,1,tiny,0,a\n"])
def test_a_file_without_speeds_is_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert main(["modelled", str(tmp_path / "x.csv")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "x.csv" in line and "answer_speedup_modelled and answer_speedup" in line
