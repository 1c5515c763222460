"""`python -m bench.screen`: one decode, every rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.torch import load_file

import methods.screen
from bench.config.paths import CONF, PROJECT
from bench.config.section import parse
from bench.screen import Screening, is_pareto, main
from methods import user_yaml
from methods.contexts import Contexts


def screened(folder: Path, *words: str) -> pd.DataFrame:
    assert main(["n=3", "decoding.max_new_tokens=12", f"output.dir={folder}", *words]) == 0
    return pd.read_csv(folder / "screen.csv", keep_default_na=False, na_values=[""])


def test_a_screen(tmp_path, capsys):
    file = tmp_path / "contexts.safetensors"
    live = screened(tmp_path, "rules=[mars,near_top]", f"record={file}", "top=0")
    lossless = live[live["rule"] == "lossless"].iloc[0]
    assert lossless["gain"] == 1 and abs(lossless["distortion"]) < 1e-9
    assert 1 < lossless["tau"] < 7 and lossless["tau_low"] < lossless["tau"] < lossless["tau_high"]
    assert set(live["rule"]) == {"lossless", "tilted", "mars", "near_top"}
    left_out = live[live["tau"].isna()]
    assert (
        set(left_out["rule"]) == {"near_top"} and left_out["left_out"].str.contains("chains").all()
    )
    assert (tmp_path / "screen.png").stat().st_size > 10_000
    assert str(file.parent) not in capsys.readouterr().err


BY_DRAWS = {"block", "traversal", "secure_sd", "secure_sd_accept", "coarse_grained"}
"""Averaged over draws, which are others in a replay."""


@pytest.mark.slow
@pytest.mark.parametrize("drafts", [("drafter=model", "draft.length=4"), ()])
def test_every_rule_that_can_be_replayed_has_its_live_numbers(tmp_path, drafts):
    """With all logits on file."""
    file = tmp_path / "contexts.safetensors"
    names = ["rule", "setting"]
    live = screened(tmp_path, *drafts, f"record={file}", "top=0").fillna({"setting": ""})
    again = screened(tmp_path / "again", f"contexts={file}").fillna({"setting": ""})
    both = live.merge(again, on=names, suffixes=("", "_again"))
    assert len(both) == len(live)
    known = both[both["tau_again"].notna()]
    assert known["tau"].notna().all() and known["rule"].nunique() > (20 if drafts else 8)
    assert (known["distortion"].isna() == known["distortion_again"].isna()).all()
    exact = known[~known["rule"].isin(BY_DRAWS)]
    for column in ("tau", "gain", "distortion"):
        apart = (exact[column] - exact[f"{column}_again"]).abs()
        assert apart.max() < 1e-4, exact.loc[apart.idxmax(), names].tolist()
    drawn = known[known["rule"].isin(BY_DRAWS)]
    assert ((drawn["tau"] / drawn["tau_again"] - 1).abs() < 0.15).all()


def test_the_contexts_that_come_with_it(tmp_path, capsys):
    """SmolLM2's: a rule is tried without a model. What lossless decoding is expected to keep is
    what it kept."""
    words = ["contexts=smollm2", "rule=mars_sampling", f"output.dir={tmp_path}"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "SmolLM2-135M" in printed and "task mt_bench, temperature 1" in printed
    table = pd.read_csv(tmp_path / "screen.csv").set_index("rule")
    file = PROJECT / "models" / "smollm2" / "contexts.safetensors"
    kept = load_file(file)["kept"]
    assert table["prompts"].unique() == [24]
    by_hand = kept.sum().item() / len(kept)
    half = table["tau_high"]["lossless"] - table["tau"]["lossless"]
    assert abs(table["tau"]["lossless"] - by_hand) < 2 * half and half < 0.1
    assert abs(table["distortion"]["lossless"]) < 1e-6 < table["distortion"]["mars"] < 0.1


def test_a_prompt_that_fails_in_its_second_turn_counts_nowhere(tmp_path, monkeypatch, capsys):
    alone = screened(tmp_path / "alone", "rules=[lossless]", "n=1")
    calls = []

    def second_fails(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 4:  # the second turn of the second prompt
            raise RuntimeError("no room")
        return decode(*given)

    decode = methods.screen.screened
    monkeypatch.setattr(methods.screen, "screened", second_fails)
    file = tmp_path / "contexts.safetensors"
    words = ["n=2", "batch=1", "decoding.max_new_tokens=12", f"output.dir={tmp_path}"]
    assert main([*words, "rules=[lossless]", f"record={file}"]) == 1
    assert "no room" in capsys.readouterr().err
    both = pd.read_csv(tmp_path / "screen.csv", keep_default_na=False, na_values=[""])
    assert both["tau"].equals(alone["tau"]) and (both["prompts"] == 1).all()
    assert Contexts(file).answers == [0, 0]


def test_contexts_are_recorded_alone(tmp_path, capsys):
    file = tmp_path / "contexts.safetensors"
    words = ["n=1", "decoding.max_new_tokens=4", f"output.dir={tmp_path}", "rules=[]"]
    assert main([*words, f"record={file}"]) == 0
    assert "1 prompts, 0 settings" in capsys.readouterr().out
    assert Contexts(file).description.top == 128 and not (tmp_path / "screen.csv").exists()


def test_settings_of_one_rule_and_the_best_decoded(tmp_path):
    table = screened(tmp_path, "-m", "rule=mars_sampling", "rule.theta=0.5,1", "check=1")
    mars = table[table["rule"] == "mars"]
    assert list(mars["setting"]) == ["theta=0.5", "theta=1"]
    strict, lossless = (table[table["rule"] == name].iloc[-1] for name in ("mars", "lossless"))
    assert strict["tau"] == pytest.approx(lossless["tau"])  # theta = 1 never relaxes
    decoded = table[table["tau_decoded"].notna()]
    assert "lossless" in set(decoded["rule"]) and len(decoded) == 2


def test_the_pareto_set():
    """By hand: b beats c, a is alone at its distortion, of the equal d and e the first counts."""
    rows = [("a", 1.0, 0.0), ("b", 3.0, 0.2), ("c", 2.0, 0.3), ("d", 4.0, 0.4), ("e", 4.0, 0.4)]
    rows += [("tilted", 9.0, 0.0), ("f", 9.0, None)]
    frame = pd.DataFrame(rows, columns=["rule", "tau", "distortion"])
    assert is_pareto(frame) == [True, True, False, True, False, False, False]


def test_every_rule_of_the_checkout_is_tried():
    """A rule's YAML that nobody listed would be left out in silence."""
    known = user_yaml.mapping(CONF / "screen.yaml")
    options = parse(Screening, {**known, "rules": None}, "")
    rules = {file.stem for file in (CONF / "rule").glob("*.yaml")}
    assert rules == set(options.settings)
