"""Profiles of machines: their file, how they are fitted and measured, and what they say of
cells."""

from __future__ import annotations

from copy import deepcopy

import pytest
import yaml

from bench import cost
from bench.config.compose import Composer, composer
from bench.config.cost_file import load, profile_of, save
from bench.config.errors import ConfigError
from bench.config.paths import CONF
from bench.run import cost_profile
from bench.run.cost_profile import Size, Times, costs_of, drafting, verification
from bench.run.session import Session
from results.metrics.cost import Linear, stated
from results.store.errors import one_line
from tests.helpers.summaries import written
from tests.helpers.tables import rows

FILES = sorted((CONF / "cost").glob("*.yaml"))
MEASURED = yaml.safe_load((CONF / "cost" / "epyc_tiny.yaml").read_text())
WRONG = rows(r"""
target | {1: {1: 1.0e+308, 2: 1.0e+308}} | ≤ 1000
target | {} | cost.target
target | {1: {2: 1.0, 8: 2.0}} | give the seconds of one token
target | {1: {1: 1.0}} | at least one more
target | {1: {1: 2.0, 8: 1.0}} | more tokens take less time
target | {0: {1: 1.0, 8: 1.0}} | cost.target.0
target | {1: {1: 3.857, 2: 4.505}} | cannot both be seconds
target | {1: {1: 3.857e-6, 2: 4.505e-6}} | cannot both be seconds
rest | {cycle: 0.0845, node: 0.0006412} | cannot both be seconds
prefill | {cycle: 1.384, node: 0.1807} | cannot both be seconds
rest.cycle | .nan | cost.rest.cycle
rests | 1 | cost.rests: unknown key; did you mean cost.rest?
sampled.drafts.model.1.forwards | {1: 0.002, 4: 0.001} | more tokens take less time
sampled.drafts.eagle3 drawn.1.forwards | {} | drafts.eagle3 drawn.1.forwards: empty
title | "a\n\e[2Jb" | must be one line of printable characters
units | {time: ms} | cost.units.time=ms: must be 's'
""")
"""Key, its wrong value in YAML, and what is said."""


@pytest.mark.parametrize(("key", "value", "said"), WRONG)
def test_wrong_numbers(key, value, said):
    *above, last = (int(part) if part.isdigit() else part for part in key.split("."))
    part = plain = deepcopy(MEASURED)
    for name in above:
        part = part[name]
    part[last] = yaml.safe_load(value)
    with pytest.raises(ConfigError) as refused:
        profile_of({"cost": plain})
    assert said in str(refused.value) and "\n" not in one_line(refused.value)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_shipped_profiles(file, tmp_path):
    """They are read, and written and read again as the same; numbers have four digits, as in the
    files."""
    profile, again = load(file), tmp_path / "again.yaml"
    assert profile.sources and 1 in profile.target
    assert "so that τ is this model's" in stated(profile)
    save(again, profile)
    assert again.read_text().startswith("# python -m bench report=controls cost=again\n")
    assert load(again) == profile
    assert yaml.safe_load(again.read_text()) == yaml.safe_load(file.read_text())


def test_what_cannot_be_read_is_not_written(tmp_path):
    rest, file = Linear.model_construct(cycle=1e308, node=0.0), tmp_path / "x.yaml"
    with pytest.raises(ConfigError, match=r"cost\.rest\.cycle"):
        save(file, load(FILES[0]).model_copy(update={"rest": rest}))
    assert not list(tmp_path.iterdir())


PRICE = {1: 0.7, 3: 1.0, 8: 1.4}
NOTHING, Q = (False, False, False), (True, False, False)


def seconds(forwards: tuple[int, ...]) -> float:
    return 0.5 + sum(PRICE[tokens] for tokens in forwards)


def test_each_number_of_tokens_has_its_price():
    """A forward over three tokens is dearer than a straight line from one to eight says."""
    shapes = [(1,), (1, 1, 1), (1,) * 7, (1, 3, 3, 3), (1, *[3] * 6), (1, *[8] * 5)]
    price = drafting([(shape, seconds(shape)) for shape in shapes])
    assert price.cycle == pytest.approx(0.5) and price.forwards == pytest.approx(PRICE)
    assert price.seconds((1, *[3] * 4)) == pytest.approx(seconds((1, *[3] * 4)))


@pytest.mark.parametrize("shapes", [[(1, 3, 8)], [(1,)], [(1, 3, 8), (1, 3)], [(), ()]])
def test_few_shapes_are_priced_as_a_whole(shapes):
    """The last is of a drafter without a model."""
    cost = drafting([(shape, seconds(shape)) for shape in shapes])
    for shape in shapes:
        assert cost.seconds(shape) == pytest.approx(seconds(shape), rel=0.03)
    assert len(cost.forwards) <= 2 and set(cost.forwards) <= set(sum(shapes, ()))


def test_what_a_rule_asks_of_drafts_is_its_own_price():
    """A rule whose drafts carry their distribution pays for that; the draft's own price is that of
    the lossless rule, and noise of a rule that asks for nothing else does not count."""

    def cycle(draft: float, verify: float, nodes: int) -> dict[str, float]:
        return {"draft": draft, "verify": verify, "accept": 0.3 + 0.01 * nodes, "rest": 0.1}

    tree = (1, 3, 3, 3)
    cycles = {Size("none", "lossless", 0, (), NOTHING): cycle(0.0, 5.0, 0)}
    for nodes, forwards in ((3, (1, 1, 1)), (15, tree)):
        for rule, carried, extra in (
            ("lossless", NOTHING, 0.0),
            ("mars", NOTHING, 0.0),
            ("fsd", Q, 0.4),
        ):
            size = Size("eagle3", rule, nodes, forwards, carried)
            cycles[size] = cycle(seconds(forwards) + extra, 7.0, nodes)
    times = Times(cycles, {"none": [(10, 2.0), (20, 3.0)], "eagle3": [(10, 0.2), (20, 0.4)]})
    costs = costs_of({1: times})
    for rule, price in (("mars", 0.3), ("fsd", 0.7)):
        accept = costs.accept[rule]
        assert (accept.cycle, accept.node) == pytest.approx((price, 0.01))
    drafts = costs.drafts["eagle3"][1]
    assert drafts.seconds(tree) == pytest.approx(seconds(tree))
    assert drafts.reading(15) == pytest.approx(0.3)
    assert verification(times.lossless) == {1: 5.0, 4: 7.0, 16: 7.0}


def test_noise_does_not_fall():
    """The smallest squared relative error of one price c for 3 s and 2 s: c = Σ 1/s ÷ Σ 1/s²."""
    cycles = [
        (Size("none", "lossless", nodes, (), NOTHING), {"verify": spent})
        for nodes, spent in ((0, 1.0), (1, 3.0), (2, 2.0))
    ]
    level = (1 / 3 + 1 / 2) / (1 / 9 + 1 / 4)
    assert verification(cycles) == pytest.approx({1: 1.0, 2: level, 3: level})


CHAIN = ("drafter=eagle3", "drafter.tree=chain", "draft.length=3")
SHAPES = {
    "model": [["draft.length=1"], ["draft.length=3"]],
    "prompt_lookup": [["draft.length=3"]],
    "eagle3": [
        ["drafter.tree=chain", "draft.length=1"],
        ["drafter.tree=chain", "draft.length=3"],
        ["drafter.total=8", "drafter.depth=2", "drafter.top_k=3"],
    ],
    "hass": [["draft.length=oops"]],
}


def test_a_profile_of_random_weights_on_this_machine(tmp_path, capsys, monkeypatch):
    """Every drafter and rule that can run has a price; arc has no constants here."""
    shapes = "random:models/shapes/tiny"
    pair = f"pair=local pair.target={shapes} pair.draft={shapes} pair.eagle3={shapes}_eagle3"
    monkeypatch.setattr(cost_profile, "SHAPES", SHAPES)
    monkeypatch.setattr(cost_profile, "JUDGED", (" ".join(CHAIN),))
    monkeypatch.setattr(Composer, "options", lambda self, group: ["lossless", "mars", "arc"])
    file = tmp_path / "mine.yaml"
    words = f"to={file} {pair} task=mini_gsm decoding.max_new_tokens=12 --prompts 1 --batches 2"
    assert cost.main(words.split()) == 0
    assert " ms per token, tiny of random weights in float32, from" in capsys.readouterr().out
    profile = profile_of({"cost": yaml.safe_load(file.read_text())})
    assert profile is not None and list(profile.target) == [1, 2]
    assert all({1, 4, 8} <= set(tokens) for tokens in profile.target.values())
    for costs in (profile.sampled, profile.greedy):
        assert costs is not None and set(costs.accept) == {"lossless", "mars"}
        assert all(sorted(price) == [1, 2] for price in costs.drafts.values())
        forwards = {name: sorted(price[1].forwards) for name, price in costs.drafts.items()}
        assert forwards == {"model": [1], "eagle3": [1, 3], "prompt_lookup": []}
    assert profile.sampled.drafts["model"][1].seconds((1, 1, 1)) > 0


def test_a_cell_on_another_machine(store, pair):
    """Its clock is the profile's alone: other speeds than those measured here, the same τ, over all
    prompts."""
    words = "method=sps n=3 timed=2 decoding.temperature=1 decoding.max_new_tokens=12"
    line = [*pair, *words.split(), f"store.dir={store.root}"]
    with composer() as hydra:
        there = Session(hydra.settings([*line, "cost=xeon_smollm2"]))
        cell = hydra.point(line).cell
    summary = there.compared(cell)
    assert summary is not None and summary.timed == summary.n == 3 and summary.phases is None
    here = written(store.cell(cell.name))
    assert summary.tau == here.tau and here.timed == 2, "what was measured stays as it is"
    low, high = summary.answer_speedup_ci95
    assert low < summary.answer_speedup < high


def test_a_report_of_another_machine_needs_no_clock(command):
    command("report=controls cost=epyc_tiny dry_run=true")
