"""Rows that choose their setting: on prompts that they do not report, and compared prompt by
prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reports.choice import reference
from results.metrics.answer_speed import Priced, modelled_speeds, token_speedup
from results.metrics.verdict import choose, reported
from results.store.sample import Compared
from tests.helpers.synthetic_cells import compared, sample, table_spec

IDS = [f"p{i:02}" for i in range(12)]


def cell(
    tau: int = 4,
    cycle_s: float = 0.1,
    passes: int = 10,
    group: bool = False,
) -> list[Compared]:
    """Prompts of `passes` cycles with `tau` tokens each; the baseline has as many tokens at 0.1 s
    each."""
    pairs = []
    for i, name in enumerate(IDS):
        more = {"group": f"item{i // 3}"} if group else {}
        own, base = (
            sample(name, range(tokens * cycles + 1), committed=[tokens] * cycles, **more)
            for tokens, cycles in ((tau, passes), (1, 40))
        )
        pairs.append(compared(own, base, decode_s=cycle_s * passes, base_decode_s=4.0))
    return pairs


def test_each_half_selects_for_the_other() -> None:
    halves = {"A": IDS[::2], "B": IDS[1::2]}
    arms = [*zip(cell(cycle_s=0.1), cell(cycle_s=0.2), strict=True)]
    cells = {
        name: [fast if fast.id in half else slow for fast, slow in arms]
        for name, half in halves.items()
    }
    chosen = choose(cells, IDS)
    assert [(choice.setting, list(choice.reported), choice.selection) for choice in chosen] == [
        ("B", halves["A"], 6),
        ("A", halves["B"], 6),
    ]
    assert [pair.timed.own.decode_s for pair in reported(cells, chosen)] == [2.0] * 12, (
        "what was fast on the prompts that selected it is slow where it is reported: no prompt "
        "does both"
    )


@given(scale=st.lists(st.floats(0.5, 2), min_size=12, max_size=12))
@settings(max_examples=50)
def test_reported_prompts_have_no_say(scale: list[float]) -> None:
    cells = {"A": cell(4, 0.1), "B": cell(5, 0.12), "C": cell(3, 0.09)}
    for number, choice in enumerate(choose(cells, IDS)):
        changed = {
            name: [
                slower(pair, factor) if pair.id in choice.reported else pair
                for pair, factor in zip(pairs, scale, strict=True)
            ]
            for name, pairs in cells.items()
        }
        assert choose(changed, IDS)[number].setting == choice.setting
        assert choice.selection + len(choice.reported) == len(IDS)


def slower(pair: Compared, factor: float) -> Compared:
    own = replace(pair.timed.own, decode_s=factor * pair.timed.own.decode_s)
    return replace(pair, timed=replace(pair.timed, own=own))


def test_the_length_of_answers_has_no_say() -> None:
    """Both settings commit four tokens per cycle; B's cycles are cheaper, but its answers happened
    to be twice as long."""
    cells = {"A": cell(4, 0.10, passes=10), "B": cell(4, 0.09, passes=20)}
    assert {one.setting for one in choose(cells, IDS)} == {"B"}
    assert Priced.of(cells["B"]).estimate(token_speedup).value == pytest.approx(
        ((4.0 + 0.5) / 41) / ((0.09 * 20 + 0.5) / 81)
    ), "by hand: 81 tokens beside 41"


def test_samples_of_an_item_stay_together() -> None:
    chosen = choose({"A": cell(group=True), "B": cell(group=True)}, IDS)
    assert [one.reported for one in chosen] == [(*IDS[0:3], *IDS[6:9]), (*IDS[3:6], *IDS[9:12])]


def test_a_single_setting_needs_no_clock_and_several_do() -> None:
    untimed = [replace(pair, timed=None) for pair in cell()]
    assert [one.selection for one in choose({"A": untimed}, IDS)] == [0, 0]
    with pytest.raises(ValueError, match="timed=2"):
        choose({"A": untimed, "B": untimed}, IDS)
    with pytest.raises(ValueError, match="none is left to report"):
        choose({"A": cell(), "B": cell()}, IDS[:1])


def test_cycles_of_each_setting_have_their_own_price() -> None:
    """Half of the prompts by K = 3, half by a K with cycles three times as long: by hand, 4 s of
    the baseline each."""
    short, long = cell(4, 0.1, 10), cell(8, 0.3, 5)
    pairs = [short[i] if i % 2 else long[i] for i in range(12)]
    mixed = {name: "short" if i % 2 else "long" for i, name in enumerate(IDS)}
    seconds = (10 * 0.1 + 5 * 0.3) / 2
    found = modelled_speeds(pairs, mixed)
    assert found["answer_speedup_modelled"] == pytest.approx((4.0 + 0.5) / (seconds + 0.5))
    assert found["speedup_modelled"] == found["answer_speedup_modelled"], "answers as long"
    assert found["answer_speedup_modelled_ci95"] == pytest.approx(
        (found["speedup_modelled"],) * 2
    ), "prompts of a setting are all alike"
    alone = modelled_speeds(short, dict.fromkeys(IDS, "short"))
    assert alone["speedup_modelled"] == pytest.approx(modelled_speeds(short)["speedup_modelled"])


def test_a_row_is_compared_with_its_own_models_lossless_row() -> None:
    assert reference(table_spec(), ("Beta", "MARS & co", "GSM8K"), "SpS") == (
        "Beta",
        "SpS",
        "GSM8K",
    )
