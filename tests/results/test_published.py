"""The papers' numbers: as printed, counted, and what is known to contradict itself among them."""

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

COUNTS = {
    "mars_table1": 18 * 6 * 2, "mars_table2": 2 * 5 * (2 + 4 * 3), "mars_text": 49,
    "fsd_table1": 4 * 3 * 2, "fsd_table2": 3 * 4 * (2 * 2 + 4 * 3), "fsd_table3": 3 * 4 * 3,
    "dropmatch_table1": 5 * 5 + 2, "dropmatch_table2": 5 * 2, "dropmatch_table3": 4, "dropmatch_table4": 9,
    "dropmatch_table5": 6, "dropmatch_table6": 8 * 4 * 3, "dropmatch_table7": 6 * 3 * 3,
    "dropmatch_table8": 4 * 4 + 3 * 4 + 2, "dropmatch_table9": 5 * 4, "dropmatch_table10": 3 * 2,
    "arc_table1": 4, "arc_table2": 14 * 4 * 3, "arc_table3": 6 * 4, "arc_table4": 3 * 4 * 2 + 4, "arc_table5": 4 * 3,
    "arc_table6": 7 * 2 * 2, "arc_table7": 3 * 3 - 1, "arc_table8": 4 * 2,
}
"""Rows × columns × numbers of each table. mars_text: results that MARS states in text and captions; the bars of its
Figure 3 carry no numbers in the text."""
DIGEST = "254c56f429a53461d9bfd3028290deaee38027199bcde182a3116edb377c86f5"
MT, HE, GSM = "MT-bench", "HumanEval", "GSM8K"


def test_the_files_are_those_that_were_checked_against_the_papers():
    """Every number was compared with the papers' text, and doubts.csv with what the numbers say of each other: the
    means, ratios, shares and intervals of a table. Who adds or mends a number does so again, and changes the digest."""
    files = [FOLDER / name for name in (*sorted(published_files()), "doubts.csv")]
    assert sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == DIGEST


def test_counts():
    assert {file.removesuffix(".csv"): len(load_published(file)) for file in published_files()} == COUNTS
    papers = {paper: sum(n for name, n in COUNTS.items() if name.startswith(paper))
              for paper in ("mars", "fsd", "dropmatch", "arc")}
    assert papers == {"mars": 356 + 49, "fsd": 252, "dropmatch": 262, "arc": 280}


def test_printed_digits_are_kept():
    assert load_published("dropmatch_table4.csv")[
        Key("Llama-3.1-70B-Instruct", "w/o dropout", "latency", "head_share")].in_unit(1) == "0.05"
    assert Printed("3.10").in_unit(1) == "3.10" and Printed("0.934").in_unit(100) == "93.4"
    assert Printed("107").in_unit(1) == "107" and Printed("0.0254").in_unit(1) == "0.0254"


FOUND = {  # by hand
    ("mars_table1", "V 13B", "EAGLE-3", "Mean", "speedup"): "3.198",
    ("mars_table1", "V 13B", "Lookahead", MT, "speedup"): "above τ",
    ("mars_table1", "V 13B", "PLD", "CNN/DM", "speedup"): "above τ",
    ("dropmatch_table8", "Llama-3.1-8B/70B-Instruct", "GSM8K / Auto-Judge + DM", "0.022", "speedup_over_autojudge"):
        "77.6 / 62.2 = 1.248",
    ("dropmatch_table2", "Llama-3.1-70B-Instruct", HE, "DropMatch", "majority_5"): "99.90%",
    ("dropmatch_table7", "Llama-3.3 70B-Instruct", "EAGLE3 + DM / 5", "Alpaca", "tau"): "L + 1 = 6",
    ("dropmatch_table6", "Qwen3 4B/32B", "5 / SD", HE, "accuracy"): "148/164 = 90.24",
    ("arc_table2", "L 8B", "EAGLE", GSM, "tokens_per_s"): "44.5",
    ("arc_table2", "L 8B", "ARC", HE, "tau"): "HASS has 4.32",
    ("arc_table4", "Llama-3.1-8B", "EAGLE-3", "MT-Bench", "tau"): "Table 2 3.35",
    ("arc_table2", "L 8B", "EAGLE-3", GSM, "speedup"): "Table 4 1.32",
    ("arc_table5", "Llama-3.1-8B", HE, "ARC", "coverage"): "[93.1, 98.4]",
    ("arc_table7", "Llama-3.1-8B", "ARC", "MMLU-Pro", "accuracy"): "Vanilla has 32.4",
    ("fsd_table3", "Qwen2.5 7B + 32B", "SD", "MMLU", "accuracy"): "82.2",
    ("fsd_table3", "Qwen2.5 7B + 32B", "FSD", HE, "speed_gain"): "a gain of 1.9",
    ("mars_table2", "Qwen3-32B", "HumanEval / 9", "0.8", "accuracy"): "0.842 is no k/164",
    ("arc_table2", "L 8B", "EAGLE", HE, "tau"): "above the 3.57 of EAGLE-3",
    ("dropmatch_table1", "Llama-3.1-70B-Instruct", "HumanEval / 0.5", "Head4", "accuracy"): "draft model alone",
    ("fsd_table3", "Gemma2 2B + 27B", "FSD", GSM, "accuracy"): "T = 0.7 is above ln 2 = 0.693",
    ("fsd_table2", "Llama3.1 8B + 70B", "SD", "MMLU", "accept_len"): "77.1%; over all draft lengths it is 78.7%",
    ("fsd_table2", "Llama3.1 8B + 70B", "SD", "CSQA", "accept_len"): "66.2%; over all draft lengths it is 75.7%",
    ("fsd_table2", "Llama3.1 8B + 70B", "SD", "MMLU", "tokens_per_s"): "a factor of 2.19",
    ("mars_table1", "Q3 235B", "MARS", GSM, "speedup"): "differ from those of Q3 32B by 0.04 to 0.09",
    ("mars_table1", "Q3 32B", "EAGLE-3", MT, "tau"): "differ from those of Q3 235B by 0.06 to 0.14",
    ("arc_table2", "L 70B", "FSD (T=0.8)", HE, "tau"): "all 3 numbers are those of FSD (T=0.6): 10.74, 3.56, 2.36",
    ("arc_table2", "L 70B", "FSD (T=0.8)", GSM, "tau"): "T = 0.8 is above ln 2",
    ("dropmatch_table7", "Llama-3.3 70B-Instruct", "EAGLE3 + DM / 9", "Alpaca", "win_rate"): "52.0% is no k/160",
    ("dropmatch_table6", "Llama-3.1 8B/70B-Instruct", "5 / SD + DM", HE, "accuracy"): "79.89% is no k/164",
}


def test_findings_known_by_hand():
    for (file, *key), words in FOUND.items():
        assert any(words in text for text in doubts_of(f"{file}.csv")[Key(*key)]), (file, key)


def test_nothing_is_found_where_nothing_is_wrong():
    """Rows whose numbers agree by hand: no finding may accuse them."""
    for file, *key in (
        ("mars_table1", "V 13B", "MARS", "Mean", "tau"), ("mars_table1", "V 13B", "Lookahead", "Alpaca", "speedup"),
        ("dropmatch_table4", "Llama-3.1-70B-Instruct", "K = 5 (Naive)", "latency", "head_share"),  # 0.163, rounding
        ("dropmatch_table6", "Llama-3.1 8B/70B-Instruct", "5 / SD", HE, "accuracy"),  # 134/164 = 81.707, cut off
        ("dropmatch_table7", "Llama-3.3 70B-Instruct", "EAGLE3 / 7", "Alpaca", "win_rate"),  # 41/80
        ("arc_table5", "Llama-3.1-8B", "MT-Bench", "ARC", "coverage_low"),
        ("fsd_table2", "Llama3.1 8B + 70B", "SD", GSM, "accept_len"),  # 90.7%, between those of L = 10 and 15
        ("arc_table2", "L 70B", "FSD (T=0.6)", GSM, "tau"), ("fsd_table3", "Llama3.1 8B + 70B", "FSD", HE, "accuracy"),
        ("dropmatch_table9", "Llama-3.1-70B-Instruct", "LiveCodeBench / Auto-Judge", "0.0004", "accuracy"),  # 274/880
        ("arc_table3", "V 13B", "EAGLE-3", HE, "accuracy"),  # 20/164 = 12.195, cut off
    ):
        assert Key(*key) in load_published(f"{file}.csv") and not doubts_of(f"{file}.csv").get(Key(*key)), key
    assert not any(doubts_of("fsd_table2.csv").get(key) for key in load_published("fsd_table2.csv")
               if key.column == HE and key.value_name == "accuracy")


def test_each_note_marks_numbers():
    for name, note in notes().items():
        table, places = note.get("table", ""), note.get("at", [])
        keys = load_published(f"{table}.csv") if table else {}
        assert all(any(place.items() <= key._asdict().items() for key in keys) for place in places), name
        marked = [key for key in keys if note_text(note) in doubts_of(f"{table}.csv").get(key, ())]
        assert bool(marked) == bool(places) == bool(table), name


def test_the_numbers_of_the_notes_on_words():
    """Those of MARS' Acc, FSD's Appendix E and DropMatch's Tables 2 and 7."""
    humaneval = {key: float(one.in_unit(1)) for key, one in load_published("mars_table2.csv").items()
                 if key.row.startswith("HumanEval") and key.value_name == "accuracy"}
    no_share = [acc for acc in humaneval.values() if round(round(acc * 164) / 164, 3) != acc]
    assert len(humaneval) == 25 and no_share == [0.842]
    accepted = float(load_published("fsd_table2.csv")["Llama3.1 8B + 70B", "SD", "HumanEval", "accept_len"].in_unit(1))
    assert [round(100 * accepted / length) for length in (10, 15, 20)] == [76, 51, 38]
    assert round(1 / 0.00005 / 164) == 122
    wins = {key.row: float(one.in_unit(1)) for key, one in load_published("dropmatch_table7.csv").items()
            if key.value_name == "win_rate"}
    assert [round(wins[f"EAGLE3 + DM / {n}"] - wins[f"EAGLE3 / {n}"], 1) for n in (5, 7, 9)] == [5.0, 4.7, 1.4]
