"""The papers' numbers: each as printed, counted, checked against each other; every note on them recomputed."""

import csv
import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
from statsmodels.stats.proportion import proportion_confint

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
from tests.helpers.paper_tables import paper_tables as read_papers
from tests.results.published_checks import TABLES, found, labels

PROJECT = Path(__file__).parents[2]
PAPERS = Path(os.environ.get("LEEWAY_SHARED", PROJECT.parent / "shared")) / "papers"
needs_papers = pytest.mark.skipif(
    not PAPERS.is_dir(), reason=f"no reference data at {PAPERS}: set LEEWAY_SHARED to the folder that has papers/")
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
MT, HE, GSM = "MT-bench", "HumanEval", "GSM8K"


def value(file: str, *key: str) -> float:
    return load_published(f"{file}.csv")[Key(*key)].value


def values(file: str, **place: str) -> list[float]:
    return [printed.value for key, printed in load_published(f"{file}.csv").items()
            if all(getattr(key, name) == wanted for name, wanted in place.items())]


def says(note: str, *numbers: object) -> None:
    """Every number must stand in what the note says follows."""
    written = re.findall(r"[−+]?\d+(?:\.\d+)?", notes()[note]["follows"])
    assert not [number for number in numbers if str(number).replace("-", "−") not in written], (numbers, written)


@needs_papers
def test_every_number_is_that_of_the_paper():
    for name, printed in read_papers(PAPERS).items():
        ours = {tuple(key): f"**{one.text}**" if one.bold else one.text
                for key, one in load_published(f"{name}.csv").items()}
        assert ours == printed, name


@needs_papers
def test_numbers_of_the_text_of_mars_stand_in_it():
    text = (PAPERS / "mars.txt").read_text(encoding="utf-8")
    assert all(one.text in text for one in load_published("mars_text.csv").values())


def test_counts():
    assert {file.removesuffix(".csv"): len(load_published(file)) for file in published_files()} == COUNTS
    assert TABLES.keys() == COUNTS.keys() and len({about["source"] for about in TABLES.values()}) == len(TABLES)
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
    assert proportion_confint(160, 161, method="wilson")[0] < 0.987  # the interval of MT-Bench needs more than this


def test_the_doubts_are_those_that_follow_from_the_numbers():
    with (FOLDER / "doubts.csv").open(encoding="utf-8", newline="") as lines:
        kept = [(row["table"], Key(*list(row.values())[1:5]), row["note"]) for row in csv.DictReader(lines)]
    assert kept == [(name, key, text) for name, places in found().items() for key, texts in places.items()
                    for text in texts]


def test_labels_that_several_papers_print():
    """The factors that docs/papers.md gives."""
    assert len(labels()) == 20
    on_mt_bench = {model: [row[2] for row in rows] for (model, method, task), rows in labels().items()
                   if (method, task) == ("EAGLE-3", "MT-Bench")}
    factors = {model: f"{max(speedups) / min(speedups):.2f}" for model, speedups in on_mt_bench.items()}
    assert factors == {"Llama-3.1-8B": "2.12", "Llama-3.3-70B": "1.27", "Qwen3-8B": "1.58", "Vicuna-13B": "1.18"}
    page = " ".join((PROJECT / "docs" / "papers.md").read_text(encoding="utf-8").split())
    assert all(f"{factor} ({model})" in page for model, factor in factors.items())


def test_each_note_marks_numbers():
    for name, note in notes().items():
        table, places = note.get("table", ""), note.get("at", [])
        keys = load_published(f"{table}.csv") if table else {}
        assert all(any(place.items() <= key._asdict().items() for key in keys) for place in places), name
        marked = [key for key in keys if note_text(note) in doubts_of(f"{table}.csv").get(key, ())]
        assert bool(marked) == bool(places) == bool(table), name


@needs_papers
def test_note_words_stand_in_the_paper():
    """Most runs of three words of each claim; formulas are garbled in the texts."""
    files = {"MARS": "mars", "FSD": "fsd", "DropMatch": "dropmatch", "ARC-Decode": "arc_decode"}
    for name, note in notes().items():
        text = (PAPERS / f"{files[note['paper']]}.txt").read_text(encoding="utf-8")
        text = re.sub(r"\s+", " ", text.replace("$", "").replace("\\theta", "θ"))
        words = note["printed"].split()
        runs = [" ".join(words[i:i + 3]) for i in range(max(len(words) - 2, 1))]
        found = sum(run in text for run in runs)
        assert found >= len(runs) / 2 or name == "dropmatch_livecodebench_length", name


def test_mars_notes():
    rows = {key.row for key in load_published("mars_table2.csv")}
    accuracy = {row: [value("mars_table2", "Qwen3-32B", row, t, "accuracy") for t in ("0.2", "0.4", "0.6", "0.8", "1")]
                for row in rows}
    rising = {row for row, a in accuracy.items() if any(x < y for x, y in pairwise(a))}
    assert len(rising) == 7 and not any("baseline" in row for row in rising)
    assert {place["row"] for place in notes()["mars_accuracy_and_temperature"]["at"]} == rising
    says("mars_accuracy_and_temperature", len(rising), len(rows) - 2, *accuracy["GSM8K / 12"][3:])
    recovery = {task: [100 * a / b for row in rows if row.startswith(task) and "baseline" not in row
                       for a, b in zip(accuracy[row], accuracy[f"{task} / baseline"], strict=True)]
                for task in (GSM, HE)}
    speedups = {key: printed.value for key, printed in load_published("mars_table1.csv").items()
                if key.row == "MARS" and key.value_name == "speedup"}
    largest = max(speedups, key=speedups.get)
    assert largest[:3] == ("L33 70B", "MARS", HE)
    says("mars_largest_speedup", speedups[largest], max(v for key, v in speedups.items() if key.column == "Mean"))
    says("mars_recovery", *(f"{end(found):.1f}" for found in recovery.values() for end in (min, max)))


def test_fsd_notes():
    qwen = "Qwen2.5 7B + 32B"
    levels = ("FSD (Low)", "FSD (Med.)", "FSD (High)")
    accuracies = [value("fsd_table2", qwen, row, GSM, "accuracy") for row in (*levels, "SD")]
    low, sd = (value("fsd_table2", qwen, row, GSM, "tokens_per_s") for row in (levels[0], "SD"))
    assert max(accuracies[:3]) < accuracies[3]
    says("fsd_qwen_gsm8k", *accuracies, f"{low - sd:.1f}", f"{accuracies[3] - accuracies[0]:.1f}")
    blocks = {(key.pair, key.column) for key in load_published("fsd_table2.csv")}
    falls = [(x, y) for at, task in blocks
             for x, y in pairwise(value("fsd_table2", at, row, task, "tokens_per_s") for row in levels) if x > y]
    assert len(blocks) == 12 and len(falls) == 1
    says("fsd_speed_and_divergence", *falls[0])
    longest = max(values("fsd_table2", value_name="accept_len"))
    says("fsd_levels_not_printed", longest, int(longest) + 1)
    gains = values("fsd_table3", value_name="speed_gain")
    lost = [value("fsd_table3", key.pair, "FSD", key.column, "accuracy") - printed.value
            for key, printed in load_published("fsd_table3.csv").items() if key.row == "SD"]
    says("fsd_one_threshold", min(gains), max(gains), sum(gain > 3 for gain in gains), len(gains),
         f"{min(lost):.1f}", f"{max(lost):+.1f}")


def test_dropmatch_notes():
    speeds = load_published("dropmatch_table6.csv")
    gains = {key: printed.value / speeds[key._replace(row=key.row.removesuffix(" + DM"))].value
             for key, printed in speeds.items() if key.row.endswith("DM") and key.value_name == "speedup_over_sd"}
    least, most = min(gains, key=gains.get), max(gains, key=gains.get)
    assert least[:3] == ("Llama-3.1 8B/70B-Instruct", "10 / SD + DM", HE)
    assert most[:3] == ("Qwen3 4B/32B", "10 / SD + DM", "IFEval")
    outside = sum(not 1.09 <= float(f"{gain:.2f}") <= 1.33 for gain in gains.values())
    says("dropmatch_speedups", f"{gains[least]:.2f}", f"{gains[most]:.2f}", outside, len(gains))
    for length in ("8", "32"):
        found = values("dropmatch_table8", value_name=f"speedup_over_sd_{length}")
        says("dropmatch_speedup_over_standard", min(found), max(found), length)
    forward, head = (values("dropmatch_table4", value_name=name) for name in ("forward_ms", "head_ms"))
    added = head[2] - head[0]
    assert max(forward) - min(forward) > added
    says("dropmatch_overhead", *(f"{ms:.0f}" for ms in forward), f"{added:.2f}",
         values("dropmatch_table4", value_name="head_share")[2])
    eagle = [value("dropmatch_table7", "Llama-3.3 70B-Instruct", f"EAGLE3 / {length}", MT, "judge_score")
             for length in (5, 7, 9)]
    says("dropmatch_full_mt_bench", min(eagle), max(eagle))
    lengths = load_published("dropmatch_table6.csv")
    increases = {key: 100 * printed.value / lengths[key._replace(row="5 / SD")].value - 100
                 for key, printed in lengths.items() if key.row == "5 / SD + DM" and key.value_name == "tau"}
    shown = sorted(f"{increase:.1f}" for increase in increases.values())
    near = sorted(increase for increase in increases.values() if 8 < increase < 13)
    says("dropmatch_ten_percent", *(f"{end(increases.values()):.1f}" for end in (min, max)), len(near), len(increases),
         f"{near[0]:.1f}", f"{near[-1]:.1f}", *(f"{increases[key]:.1f}" for key in increases if key.column == HE))
    assert len(shown) == 8
    largest = max(values("dropmatch_table9", value_name="tau"))
    says("dropmatch_livecodebench_length", largest, int(largest - 1) + 1)


def test_arc_notes():
    fsd = [printed.value for key, printed in load_published("arc_table2.csv").items()
           if key.row.startswith("FSD") and key.value_name == "speedup"]
    above = [speedup for speedup in fsd if speedup >= 2]
    says("arc_fsd_below_two", len(fsd) - len(above), len(fsd), f"{min(above):.2f}", f"{max(above):.2f}")
    eagle, pruned = ({key.column: printed.value for key, printed in load_published("arc_table4.csv").items()
                      if key.row == row and key.value_name == "speedup"} for row in ("EAGLE-3", "ARC (prune-only)"))
    changes = [round(pruned[task] - eagle[task], 2) for task in eagle]
    assert sorted(changes) == [-0.01, 0.0, 0.03, 0.03]
    says("arc_pruning_gains", max(changes), eagle[HE], pruned[HE])
    says("arc_budget", 6, f"{6 * 0.05:.2f}", 0.05)
    best = [max(values("arc_table8", value_name=name)) for name in ("tau", "tokens_per_s")]
    whole = [value("arc_table2", "Q 8B", "EAGLE-3", MT, name) for name in ("tau", "tokens_per_s")]
    assert all(x > y for x, y in zip(whole, best, strict=True))
    says("arc_pruned_and_unpruned", f"{whole[0]:.2f}", whole[1], f"{best[0]:.2f}", best[1])
