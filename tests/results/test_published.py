"""The papers' numbers: as printed, and what is known to contradict itself among them."""

from hashlib import sha256

from results.reports.published import (
    FOLDER,
    Key,
    Printed,
    doubts_of,
    load_published,
    note_text,
    notes,
    published_files,
)

DIGEST = "428e91b4194a1b9d1a5c4f1f28b1230493b7593a445b8293de71c4aa8fcfc8a9"


def test_the_files_are_those_that_were_checked_against_the_papers():
    """Every number was compared with the papers' text, and doubts.csv with what the numbers say of
    each other: the means, ratios, shares and intervals of a table. Who adds or mends a number does
    so again, and changes the digest."""
    files = [FOLDER / name for name in (*sorted(published_files()), "doubts.csv")]
    assert sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == DIGEST


def test_printed_digits_are_kept():
    assert (
        load_published("dropmatch_table4.csv")[
            Key("Llama-3.1-70B-Instruct", "w/o dropout", "latency", "head_share")
        ].in_unit(1)
        == "0.05"
    )
    assert Printed("3.10").in_unit(1) == "3.10" and Printed("0.934").in_unit(100) == "93.4"
    assert Printed("107").in_unit(1) == "107" and Printed("0.0254").in_unit(1) == "0.0254"


def test_each_note_marks_numbers():
    for name, note in notes().items():
        table, places = note.get("table", ""), note.get("at", [])
        keys = load_published(f"{table}.csv") if table else {}
        assert all(
            any(place.items() <= key._asdict().items() for key in keys) for place in places
        ), name
        marked = [key for key in keys if note_text(note) in doubts_of(f"{table}.csv").get(key, ())]
        assert bool(marked) == bool(places) == bool(table), name
