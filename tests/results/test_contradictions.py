"""`report=contradictions`: complete, and the arithmetic of its newest rows from the printed tables."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.__main__ import main
from results.reports.contradictions import Contradiction, contradictions, kind_of
from results.reports.published import Key, load_published, notes


def printed(file: str, pair: str, row: str, column: str, name: str) -> float:
    return load_published(f"{file}.csv")[Key(pair, row, column, name)].value


def follows(name: str) -> str:
    note = notes()[name]
    return f"{note['printed']} {note['follows']} {note['computed']}"


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
    ratios, even_so = {}, 0
    table = load_published("fsd_table2.csv")
    for pair in ("Llama3.1 8B + 70B", "Gemma2 2B + 27B", "Qwen2.5 7B + 32B"):
        for task in ("GSM8K", "CSQA", "MMLU", "HumanEval"):
            draft, target = (
                printed("fsd_table2", pair, model, task, "tokens_per_s") for model in ("M_D", "M_T")
            )
            for row in ("SD", "FSD (Low)", "FSD (Med.)", "FSD (High)"):
                kept = printed("fsd_table2", pair, row, task, "accept_len")
                lengths = [length for length in (5, 10, 15, 20) if length >= kept]
                most = max((kept + 1) / (length / draft + 1 / target) for length in lengths)
                speed = printed("fsd_table2", pair, row, task, "tokens_per_s")
                ratios[pair, task, row] = speed / most
                half = 0.5 * 10 ** -table[Key(pair, row, task, "accept_len")].decimals
                even_so += speed - 0.05 > max(
                    (kept + half + 1) / (length / (draft + 0.05) + 1 / (target + 0.05))
                    for length in lengths
                )
    above = [ratio for ratio in ratios.values() if ratio > 1]
    text = follows("fsd_speed_against_its_lengths")
    assert f"in {len(above)} of the {len(ratios)} cells" in text
    assert f"in {sum(ratio >= 1.04 for ratio in above)} of them by 4% or more" in text
    assert (
        f"{even_so} of the {len(above)} stay out of reach however the numbers were rounded" in text
    )
    assert f"a factor of {ratios['Llama3.1 8B + 70B', 'CSQA', 'SD']:.2f}" in text


def test_dropmatchs_quotients() -> None:
    llama, text = "Llama-3.1 8B/70B-Instruct", follows("dropmatch_speedup_of_gsm8k")
    with_dm, without = (
        printed("dropmatch_table6", llama, f"10 / {row}", "GSM8K", "speedup_over_sd")
        for row in ("SD + DM", "SD")
    )
    assert f"{with_dm:g} / {without:g} = {with_dm / without:.3f}" in text
    assert f"{(with_dm - 0.005) / (without + 0.005):.3f} to " in text
    assert f"to {(with_dm + 0.005) / (without - 0.005):.3f}" in text
    at_five, at_ten = (
        {
            key._replace(row=""): value.value
            for key, value in load_published("dropmatch_table6.csv").items()
            if key.row == f"{length} / SD" and key.value_name == "accuracy"
        }
        for length in (5, 10)
    )
    moved = [abs(at_ten[key] - at_five[key]) for key in at_five]
    text = follows("dropmatch_lossless_and_length")
    assert f"differs in {sum(change > 0 for change in moved)} of {len(moved)} comparisons" in text
    assert f"up to {max(moved):.1f} points" in text
    table = load_published("dropmatch_table6.csv")
    gains = [
        abs(value.value - table[key._replace(row=key.row.removesuffix(" + DM"))].value)
        for key, value in table.items()
        if key.row.endswith("+ DM") and key.value_name == "accuracy"
    ]
    smaller = sum(gain < max(moved) for gain in gains)
    assert f"{smaller} of the {len(gains)} differences" in text
    share = printed(
        "dropmatch_table4", "Llama-3.1-70B-Instruct", "K = 5 (Naive)", "latency", "head_ms"
    )
    total = printed(
        "dropmatch_table4", "Llama-3.1-70B-Instruct", "K = 5 (Naive)", "latency", "forward_ms"
    )
    text = follows("dropmatch_share_of_the_head")
    assert f"{share:g} / {total:g} is {100 * share / total:.3f}%" in text
    least, most = (100 * (share + half) / (total - 100 * half) for half in (-0.005, 0.005))
    assert f"{least:.3f}% to {most:.3f}%" in text


def test_dropmatchs_deeper_trees() -> None:
    rises = {}
    for row in ("EAGLE3", "EAGLE3 + DM"):
        for task in ("GSM8K", "MT-bench", "Alpaca"):
            nine, seven = (
                printed(
                    "dropmatch_table7", "Llama-3.3 70B-Instruct", f"{row} / {length}", task, "tau"
                )
                for length in (9, 7)
            )
            rises[row, task] = nine - seven
    text = follows("dropmatch_tau_of_two_lengths")
    assert rises.pop(("EAGLE3", "GSM8K")) == 0
    assert f"rise by {min(rises.values()):.2f} to {max(rises.values()):.2f}" in " ".join(
        text.split()
    )
    assert f"on the same questions by {rises['EAGLE3 + DM', 'GSM8K']:.2f}" in text


def test_an_answer_of_two_tokens() -> None:
    taus = [
        value.text
        for key, value in load_published("arc_table7.csv").items()
        if key.value_name == "tau"
    ]
    assert all(float(tau) > 2 and tau in follows("arc_letters_of_mmlu_pro") for tau in taus)
    cut = printed("arc_table3", "V 13B", "EAGLE-3", "HumanEval", "accuracy")
    assert not any(round(100 * k / 164, 1) == cut for k in range(165))
    assert int(1000 * 20 / 164) / 10 == cut
