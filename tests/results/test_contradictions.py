"""The papers' numbers as printed; `report=contradictions`: complete, and the arithmetic of its newest
rows from the printed tables."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest

from bench.__main__ import main
from results.reports.contradictions import Contradiction, contradictions, kind_of
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


def printed(file: str, pair: str, row: str, column: str, name: str) -> float:
    return load_published(f"{file}.csv")[Key(pair, row, column, name)].value


def said_by(name: str, *claims: str) -> None:
    """The note says each of these."""
    note = notes()[name]
    text = " ".join(f"{note['printed']} {note['follows']} {note['computed']}".split())
    assert [claim for claim in claims if claim not in text] == []


def test_all_are_printed_with_numbers_arithmetic_and_consequence(capsys) -> None:
    assert main(["report=contradictions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = contradictions()
    assert len(found) >= 45 and lines[-1].startswith(f"{len(found)} contradictions: MARS ")
    assert all(getattr(each, part) for each in found for part in Contradiction.__slots__)
    assert len({(each.where, each.printed, each.computed) for each in found}) == len(found)
    assert Counter(line.split(":")[0].strip() for line in lines)["follows"] == len(found)


def test_a_doubt_of_no_kind_or_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="x 1: fits 0 kinds"):
        kind_of("x 1", {"y": "…"})
    with pytest.raises(ValueError, match="fits 2 kinds"):
        kind_of("x 1", {"x": "…", "1$": "…"})


def test_fsds_speeds_against_its_accepted_lengths() -> None:
    """A cycle is L passes of M_D and one of M_T, and emits the accepted drafts and a token."""
    table = load_published("fsd_table2.csv")

    def most(at: Key, rounded: int = 0) -> float:
        """Tokens per second; with `rounded` as much as the printed digits leave open."""
        kept = table[at]
        passes = [
            table[at._replace(row=model, value_name="tokens_per_s")].value + 0.05 * rounded
            for model in ("M_D", "M_T")
        ]
        emitted = kept.value + 1 + rounded * 0.5 * 10**-kept.decimals
        lengths = [length for length in (5, 10, 15, 20) if length >= kept.value]
        return max(emitted / (length / passes[0] + 1 / passes[1]) for length in lengths)

    cells = [at for at in table if at.value_name == "accept_len"]
    speeds = {at: table[at._replace(value_name="tokens_per_s")].value for at in cells}
    ratios = {at: speeds[at] / most(at) for at in cells}
    above = [ratio for ratio in ratios.values() if ratio > 1]
    even_so = sum(speeds[at] - 0.05 > most(at, rounded=1) for at in cells)
    worst = ratios[Key("Llama3.1 8B + 70B", "SD", "CSQA", "accept_len")]
    said_by(
        "fsd_speed_against_its_lengths",
        f"in {len(above)} of the {len(ratios)} cells",
        f"in {sum(ratio >= 1.04 for ratio in above)} of them by 4% or more",
        f"{even_so} of the {len(above)} stay out of reach however the numbers were rounded",
        f"a factor of {worst:.2f}",
    )


def test_dropmatchs_quotients() -> None:
    llama = "Llama-3.1 8B/70B-Instruct"
    with_dm, without = (
        printed("dropmatch_table6", llama, f"10 / {row}", "GSM8K", "speedup_over_sd")
        for row in ("SD + DM", "SD")
    )
    said_by(
        "dropmatch_speedup_of_gsm8k",
        f"{with_dm:g} / {without:g} = {with_dm / without:.3f}",
        f"{(with_dm - 0.005) / (without + 0.005):.3f} to ",
        f"to {(with_dm + 0.005) / (without - 0.005):.3f}",
    )
    scores = {
        key: value.value
        for key, value in load_published("dropmatch_table6.csv").items()
        if key.value_name == "accuracy"
    }
    moved = [
        abs(scores[key._replace(row="10 / SD")] - score)
        for key, score in scores.items()
        if key.row == "5 / SD"
    ]
    gains = [
        abs(score - scores[key._replace(row=key.row.removesuffix(" + DM"))])
        for key, score in scores.items()
        if key.row.endswith("+ DM")
    ]
    said_by(
        "dropmatch_lossless_and_length",
        f"differs in {sum(change > 0 for change in moved)} of {len(moved)} comparisons",
        f"up to {max(moved):.1f} points",
        f"{sum(gain < max(moved) for gain in gains)} of the {len(gains)} differences",
    )
    place = "dropmatch_table4", "Llama-3.1-70B-Instruct", "K = 5 (Naive)", "latency"
    share, total = (printed(*place, name) for name in ("head_ms", "forward_ms"))
    least, most = (100 * (share + half) / (total - 100 * half) for half in (-0.005, 0.005))
    said_by(
        "dropmatch_share_of_the_head",
        f"{share:g} / {total:g} is {100 * share / total:.3f}%",
        f"{least:.3f}% to {most:.3f}%",
    )


def test_dropmatchs_deeper_trees() -> None:
    place = "dropmatch_table7", "Llama-3.3 70B-Instruct"
    rises = {}
    for row in ("EAGLE3", "EAGLE3 + DM"):
        for task in ("GSM8K", "MT-bench", "Alpaca"):
            nine, seven = (printed(*place, f"{row} / {depth}", task, "tau") for depth in (9, 7))
            rises[row, task] = nine - seven
    assert rises.pop(("EAGLE3", "GSM8K")) == 0
    said_by(
        "dropmatch_tau_of_two_lengths",
        f"rise by {min(rises.values()):.2f} to {max(rises.values()):.2f}",
        f"on the same questions by {rises['EAGLE3 + DM', 'GSM8K']:.2f}",
    )


def test_an_answer_of_two_tokens() -> None:
    table = load_published("arc_table7.csv")
    taus = [value.text for key, value in table.items() if key.value_name == "tau"]
    assert all(float(tau) > 2 for tau in taus)
    said_by("arc_letters_of_mmlu_pro", *taus)
    cut = printed("arc_table3", "V 13B", "EAGLE-3", "HumanEval", "accuracy")
    assert not any(round(100 * k / 164, 1) == cut for k in range(165))
    assert int(1000 * 20 / 164) / 10 == cut


DIGEST = "428e91b4194a1b9d1a5c4f1f28b1230493b7593a445b8293de71c4aa8fcfc8a9"


def test_the_files_are_those_that_were_checked_against_the_papers():
    """Every number was compared with the papers' text, and doubts.csv with what the numbers say of
    each other: the means, ratios, shares and intervals of a table. Who adds or mends a number does
    so again, and changes the digest."""
    files = [FOLDER / name for name in (*sorted(published_files()), "doubts.csv")]
    assert sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == DIGEST


def test_printed_digits_are_kept():
    for text in ("3.10", "107", "0.0254"):
        assert Printed(text).in_unit(1) == text
    assert Printed("0.934").in_unit(100) == "93.4"


def test_each_note_marks_numbers():
    for name, note in notes().items():
        table, places = note.get("table", ""), note.get("at", [])
        keys = load_published(f"{table}.csv") if table else {}
        assert all(
            any(place.items() <= key._asdict().items() for key in keys) for place in places
        ), name
        marked = [key for key in keys if note_text(note) in doubts_of(f"{table}.csv").get(key, ())]
        assert bool(marked) == bool(places) == bool(table), name
