"""README and findings say what the committed CSV files say."""

from pathlib import Path

import pytest

from results.reports import prose

CSV = """Rule,Task,value_name,value,ci_low,ci_high,n,cell
MARS,gsm,tau_gain,0.494,0.3,0.7,64,a
MARS,gsm,tau_gain,0.494,0.3,0.7,64,a
MARS,gsm,accuracy,0.5,0.4,0.62,64,a
MARS,chat,accuracy,0.25,,,64,b
FSD,gsm,tau_gain,,,,64,c
"""
PAGE = """Before.
<!-- numbers
MARS gains {{pair/gains | MARS | tau_gain}}, at {{pair/gains | MARS;
chat | accuracy}} and {{pair/gains | MARS; gsm | accuracy | value}} of {{pair/gains | MARS | tau_gain | n}} prompts.
-->
old
<!-- end -->
After.
"""


@pytest.mark.parametrize("file", prose.FILES)
def test_the_committed_pages_have_the_numbers_of_the_csv_files(file: str) -> None:
    page = Path(file).read_text(encoding="utf-8")
    assert "<!-- end -->" in page, "numbers of results are in blocks"
    assert prose.rendered(page) == page, "run `python -m results.reports.prose`"


def test_numbers_in_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "MEASURED", tmp_path)
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "gains.csv").write_text(CSV)
    page = prose.rendered(PAGE)
    assert "MARS gains +0.49 [+0.30, +0.70], at 25.0% and 50.0% of 64 prompts.\n<!-- end -->\nAfter." in page
    assert prose.rendered(page) == page and page.startswith("Before.\n<!-- numbers\nMARS gains {{pair/gains")


@pytest.mark.parametrize(("place", "complaint"), [
    ("pair/gains | FSD | tau_gain", "0 cells of"), ("pair/gains | MARS | accuracy", "2 cells of"),
    ("pair/gains | ARC | tau", "0 cells of"), ("pair/none | ARC | tau", "no file"),
    ("pair/gains", "a place is FILE |")])
def test_a_place_without_a_number_is_refused(place: str, complaint: str, tmp_path: Path,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "MEASURED", tmp_path)
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "gains.csv").write_text(CSV)
    with pytest.raises(ValueError, match="pair/") as raised:
        prose.rendered(f"<!-- numbers\n{{{{{place}}}}}\n-->\n<!-- end -->")
    assert complaint in str(raised.value) and "\n" not in str(raised.value)
