"""The advice on a workload: what the intervals show is said, what they leave open is said to be open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from results.metrics.quality_loss import Estimate
from results.reports.advice import Candidate, advise, needed, thumb

LIMIT, MIN = 0.05, 20


def one(label: str, low: float, high: float, *, loss: tuple[float, float] | None = None, tau: float = 2.5,
        n: int = 40) -> Candidate:
    """A setting with these intervals and their middles; exact without a loss."""
    lost = Estimate() if loss is None else Estimate(sum(loss) / 2, loss)
    return Candidate(label, loss is None, tau, Estimate((low + high) / 2, (low, high)), lost, n)


def test_no_gain() -> None:
    found = advise([one("SpS", 0.7, 0.8), one("PLD", 0.8, 0.95), one("MARS", 0.8, 0.9, loss=(0, 0.01))], LIMIT, MIN)
    assert (found.kind, found.best, found.exact) == ("no gain", "PLD", None)
    assert found.headline.startswith("No:") and "0.88× [0.80, 0.95]" in found.headline


def test_a_lossless_gain() -> None:
    found = advise([one("SpS", 1.4, 1.6, tau=3.4), one("PLD", 1.1, 1.2)], LIMIT, MIN)
    assert (found.kind, found.best, found.exact, found.rule_of_thumb) == ("gain", "SpS", "SpS", "worth it")
    assert "without loss" in found.headline and "overlap" not in " ".join(found.reasons)
    assert any("best of 2 settings" in reason for reason in found.reasons)


def test_a_relaxed_gain_within_the_limit_names_the_lossless_one_too() -> None:
    found = advise([one("SpS", 1.4, 1.6), one("MARS", 1.55, 1.9, loss=(0.0, 0.04))], LIMIT, MIN)
    assert (found.kind, found.best, found.exact) == ("gain", "MARS", "SpS")
    assert "within the limit of 5%" in found.headline
    assert any("Fastest lossless setting: SpS" in reason for reason in found.reasons)
    assert any("1 other setting: the intervals overlap" in reason for reason in found.reasons)


def test_a_gain_only_above_the_limit() -> None:
    found = advise([one("SpS", 0.8, 0.9), one("MARS", 1.5, 1.7, loss=(0.1, 0.3))], LIMIT, MIN)
    assert (found.kind, found.best, found.exact) == ("gain at a price", "MARS", None)
    assert "Only at a price" in found.headline and "20.0% [10.0%, 30.0%]" in found.headline
    assert advise([one("SpS", 0.8, 0.9), one("MARS", 1.5, 1.7, loss=(0.1, 0.3))], 0.5, MIN).kind == "gain"


def test_too_few_prompts_to_see_a_gain() -> None:
    found = advise([one("SpS", 0.9, 1.3, n=40)], LIMIT, MIN)
    assert (found.kind, found.best) == ("undecided", "SpS") and "Undecided after 40 prompts" in found.headline
    assert any("About 178 prompts" in reason for reason in found.reasons)
    narrow = advise([one("SpS", 1.1, 1.3, n=4)], LIMIT, MIN)
    assert narrow.kind == "undecided" and any("With fewer than 20 prompts" in reason for reason in narrow.reasons)
    assert any("About 20 prompts" in reason for reason in narrow.reasons)
    alone = Candidate("SpS", True, 2.0, Estimate(1.4), Estimate(), 1)
    assert advise([alone], LIMIT, MIN).kind == "undecided", "one prompt has no interval"


def test_too_few_prompts_to_know_the_loss() -> None:
    few = [one("SpS", 0.8, 0.9, n=5), one("MARS", 1.5, 1.7, loss=(0.0, 0.0), n=5)]
    assert advise(few, LIMIT, MIN).kind == "undecided"
    open_loss = advise([one("SpS", 0.8, 0.9), one("MARS", 1.5, 1.7, loss=(0.0, 0.2))], LIMIT, MIN)
    assert (open_loss.kind, open_loss.best) == ("undecided", "MARS")
    assert "10.0% [0.0%, 20.0%], is not shown to be within the limit of 5%" in open_loss.headline
    assert "Even without loss" not in open_loss.headline, "it is seen to lose more"
    little = advise([one("SpS", 0.8, 0.9), one("MARS", 1.5, 1.7, loss=(0.0, 0.08))], LIMIT, MIN)
    assert "within the limit of 5%. Even without loss, that takes about 86 prompts" in little.headline
    wide = advise([one("SpS", 1.2, 1.3), one("MARS", 1.5, 1.7, loss=(0.0, 0.2))], LIMIT, MIN)
    assert (wide.kind, wide.best) == ("gain", "SpS")
    assert any(reason.startswith("MARS may be faster") and "not shown" in reason for reason in wide.reasons)


def test_a_certain_gain_above_the_limit_does_not_hide_that_the_rest_is_open() -> None:
    found = advise([one("SpS", 0.9, 1.2), one("MARS", 1.5, 1.7, loss=(0.1, 0.3))], LIMIT, MIN)
    assert (found.kind, found.best) == ("undecided", "SpS") and any("MARS" in reason for reason in found.reasons)


def test_no_gain_where_all_lose_too_much() -> None:
    found = advise([one("MARS", 0.9, 1.5, loss=(0.1, 0.3))], LIMIT, MIN)
    assert found.kind == "no gain" and "every setting loses more than the limit of 5%" in found.headline


def test_a_gain_that_is_only_longer_text_is_none() -> None:
    long = Candidate("MARS", False, 3.5, Estimate(0.95, (0.93, 0.97)), Estimate(0.0, (-0.01, 0.01)), 40,
                     Estimate(1.7, (1.6, 1.8)), 1.8)
    found = advise([long], LIMIT, MIN)
    assert found.kind == "no gain"
    assert found.reasons[-1] == ("Faster by the token, but not shown to answer sooner: MARS (1.70× by the token, 0.95× "
                                 "by the answer, answers 1.80× as long).")
    beside = advise([one("SpS", 1.4, 1.6), long], LIMIT, MIN)
    assert (beside.kind, beside.best) == ("gain", "SpS") and "MARS" in beside.reasons[-1]
    for other in (replace(long, length=0.9), replace(long, by_token=Estimate(1.1, (0.9, 1.3)))):
        assert "by the token" not in " ".join(advise([other], LIMIT, MIN).reasons)


def test_nothing_measured() -> None:
    assert advise([], LIMIT, MIN).best is None
    assert advise([Candidate("SpS", True, None, Estimate(), Estimate(), 0)], LIMIT, MIN).kind == "undecided"


@pytest.mark.parametrize(("tau", "said"), [(1.99, "not worth it"), (2.0, "between"), (3.0, "between"),
                                           (3.01, "worth it"), (None, None)])
def test_rule_of_thumb(tau, said) -> None:
    assert thumb(tau) == said


def test_rule_of_thumb_against_the_clock() -> None:
    assert "drafts are cheap" in advise([one("PLD", 1.2, 1.3, tau=1.5)], LIMIT, MIN).reasons[0]
    assert "cost more than they save" in advise([one("SpS", 0.8, 0.9, tau=3.5)], LIMIT, MIN).reasons[0]


def test_needed_prompts_shrink_the_interval_to_one() -> None:
    assert needed(one("SpS", 1.0, 1.4, n=10)) == 10
    assert needed(one("SpS", 1 / 1.21, 2 * 1.21 - 1 / 1.21, n=10)) == 40, "twice as wide takes four times as many"
    assert needed(one("SpS", 0.8, 0.9)) is None


intervals = st.tuples(st.floats(0.2, 3), st.floats(0, 1)).map(lambda x: (x[0], x[0] + x[1]))
losses = st.none() | st.tuples(st.floats(-0.2, 0.5), st.floats(0, 0.5)).map(lambda x: (x[0], x[0] + x[1]))


@example([((2.0, 2.0), None, 2), ((1.5, 1.5), None, 20)], 2.3e-308)  # a limit that no number of prompts can show
@given(st.lists(st.tuples(intervals, losses, st.integers(2, 50)), min_size=1, max_size=6), st.floats(0, 0.3))
def test_what_is_recommended_is_shown(settings, limit) -> None:
    """A yes always names a setting whose whole interval gains and whose loss is wholly within the limit; a no means
    that no setting can gain within it."""
    found = [one(f"s{i}", *speed, loss=loss, n=n) for i, (speed, loss, n) in enumerate(settings)]
    advice = advise(found, limit, MIN)
    best = next(x for x in found if x.label == advice.best)
    allowed = [x for x in found if x.exact or x.loss.interval[0] <= limit or x.n < MIN]
    if advice.kind != "undecided":
        assert best.n >= MIN
    if advice.kind == "gain":
        assert best.speedup.interval[0] > 1 and (best.exact or best.loss.interval[1] <= limit)
    elif advice.kind != "undecided":
        assert all(x.speedup.interval[1] <= 1 and x.n >= MIN for x in allowed)
        assert (best.speedup.interval[0] > 1) == (advice.kind == "gain at a price")
