"""`python -m bench.published`: counts and findings."""

from bench.published import main


def test_counts_and_findings_of_one_table(capsys):
    assert main(["mars_table1"]) == 0
    said = capsys.readouterr().out
    assert "216" in said and "mean 3.198" in said and "arc" not in said


def test_an_unknown_name_is_refused(capsys):
    assert main(["mars_table9"]) == 2
    assert "mars_table9: no such file; there are mars_table1, " in capsys.readouterr().err
