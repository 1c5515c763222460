"""FSD's draft length and thresholds, chosen as in Appendix D, and reports that take them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from bench.config.compose import composer
from bench.reports.plan import plan_of
from bench.reports.run import load_report
from models.train.__main__ import main
from models.train.rules.thresholds import Thresholds, choose

SMALL = [
    "task=mini_choice",
    "prompts=2",
    "scored=3",
    "trials=1",
    "lengths=[1,3]",
    "thresholds=[0.001,0.01,0.1,0.8]",
    "max_new_tokens=12",
    "engine.device=cpu",
]


def test_a_second_run_decodes_nothing_again(tmp_path, capsys):
    """Its speeds are those of the first."""
    out = tmp_path / "fsd" / "choice.json"
    given = [*SMALL, f"out={out}", f"work={tmp_path / 'work'}"]
    assert main(["thresholds", *given]) == 0
    first = json.loads(out.read_text())
    assert main(["thresholds", *given]) == 0
    assert json.loads(out.read_text()) == first
    speeds, shares = first["sd_tokens_per_s"], first["fsd_acceptance"]
    assert speeds.keys() == {"1", "3"} and speeds[str(first["length"])] == max(speeds.values())
    assert shares["0.8"] > shares["0.001"]
    nearest = min(abs(share - first["sd_acceptance"]) for share in shares.values())
    assert abs(shares[str(first["equal_threshold"])] - first["sd_acceptance"]) == nearest
    assert f"draft.length={first['length']} rule.threshold=" in capsys.readouterr().out


def test_reports_take_the_chosen_numbers_and_make_them_first(tmp_path):
    """Each pair and task has its own; autoregressive decoding needs none."""
    given = ["scale=paper", "pair=qwen25_7b_32b", "n=200", f"output.dir={tmp_path}"]
    with composer() as hydra:
        spec = load_report("fsd_table2", hydra)
        before = plan_of(spec, hydra, given)
        steps = {step.file.name: step for step in before.steps.values()}
        made = tmp_path / "thresholds" / "qwen25_7b_32b_csqa_fsd.json"
        made.parent.mkdir()
        levels = {"Low": 0.3, "Med.": 0.5, "High": 0.9}
        made.write_text(json.dumps({"length": 20, "levels": levels}))
        after = plan_of(spec, hydra, given)
        made.write_text('{"length": 20')
        with pytest.raises(ValueError, match=r"csqa_fsd.json: is not what .* remove it"):
            plan_of(spec, hydra, given)
    assert len(before.cells) == 8 and len(steps) == 4  # M_D and M_T
    step = steps[made.name]
    assert {"pair=qwen25_7b_32b", "task=csqa_fsd", "scored=200", f"out={made}"} <= {*step.argv}
    assert step.planned is not None and step.planned.decoding.temperature == 0.6
    # 32 at four lengths and ten thresholds, 200 by each model alone and at three to ten thresholds,
    # all three times
    assert step.answers == (3 * (32 * 14 + 200 * 5), 3 * (32 * 14 + 200 * 12))
    guessed = {
        step.planned.rule.options.threshold
        for coords, step in before.steps.items()
        if coords[1].startswith("FSD (") and coords[2] == "CSQA"
    }
    assert guessed == {0.2, 0.4, 0.6}
    found = {coords[1]: cell for coords, cell in after.cells.items() if coords[2] == "CSQA"}
    assert {found[name].draft.length for name in ("SD", "SD, p/q", "FSD (Low)")} == {20}
    for level, threshold in levels.items():
        assert found[f"FSD ({level})"].rule.options.threshold == threshold
    [note] = {note for coords, note in after.notes.items() if coords[1:] == ("FSD (High)", "CSQA")}
    assert note == "tuned on its prompts (Appendix D): length 20, threshold 0.9"


@pytest.mark.parametrize(
    "sd, accuracy, chosen",
    [
        (
            62,
            {3: 90, 4: 89, 5: 89, 6: 89, 7: 88, 8: 70},
            (0.3, 0.5, 0.7),
        ),  # the paper's example: 90 and 80 give 88
        (62, {3: 80, 4: 70, 5: 60, 6: 50}, (0.3, 0.4, 0.5)),  # three in any case
        (10, {n: 90 for n in range(1, 11)}, (0.1, 0.6, 1.0)),  # nothing is lost
        (400, {8: 90, 9: 70, 10: 90}, (0.8, 0.9, 1.0)),
    ],
)
def test_thresholds_rise_until_a_fifth_of_the_lead_is_lost(sd, accuracy, chosen):
    """SD is fastest with L = 10; FSD accepts 20 t of 100 drafts more at each threshold t of 0.1 to
    1."""
    with composer(name="thresholds") as hydra:
        words = ["trials=1", "scored=100", "engine.device=cpu"]
        settings = Thresholds.from_config(hydra.point(words).config)

    def row(name):
        kind, *number = name.split()
        if kind == "SD":
            return [sd, 100, 1000, abs(int(number[0]) - 10) + 1, 0]
        if kind == "FSD":
            step = round(10 * float(number[0]))
            return [20 * step, 100, 0, 0, accuracy.get(step, 0)]
        return [0, 0, 0, 0, {"M_D": 80, "M_T": 90}[kind]]

    def sums(arms, *others):
        return {name: row(name) for name in arms}

    trials = SimpleNamespace(
        drafting=lambda rule, length: None,
        alone=lambda: {"M_D": None, "M_T": None},
        task=SimpleNamespace(prompts=lambda n, seed: [None] * n),
        sums=sums,
        timed=sums,
    )
    found = choose(settings, trials)
    assert found["length"] == 10 and tuple(found["levels"].values()) == chosen
    assert found["least_accuracy"] == pytest.approx(0.88)
