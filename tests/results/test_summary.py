"""The metrics of a cell: hand-computed examples and identities that must hold for any samples."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from results.metrics.catalog import METRICS
from results.metrics.frontier import distance_of
from results.metrics.summary import diversity
from results.store.sample import Distortion, FailedSample, FirstDifference
from tests.helpers import synthetic_cells
from tests.helpers.synthetic_cells import summed
from tests.helpers.tables import beside


def sample(
    id,
    committed,
    *,
    base_ids=None,
    base_score=None,
    decode_s=1.0,
    base_decode_s=2.0,
    autoregressive=False,
    **fields,
):
    """A timed prompt; its baseline gives the same answer where nothing else is said."""
    own = synthetic_cells.sample(id, range(1 + sum(committed)), committed=committed, **fields)
    base_ids = base_ids or own.output_ids
    score = own.score if base_score is None else base_score
    base = synthetic_cells.sample(id, base_ids, committed=[1] * (len(base_ids) - 1), score=score)
    return synthetic_cells.compared(
        own, None if autoregressive else base, decode_s=decode_s, base_decode_s=base_decode_s
    )


def distortion(tokens, nats):
    """A law that is 0.02 nats per token from a target of logits 0 and 1 at temperature 0.5."""
    mass = [math.log(1 + math.exp(n / 4)) for n in (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24)]
    second = 1 / (1 + math.exp(-2))
    entropy = mass[6] - 2 * second - 0.02
    return Distortion(
        basis="law",
        tokens=tokens,
        nats=nats,
        tv=0.2 * tokens,
        js=0.1 * tokens,
        outside=0.3 * tokens,
        entropy=entropy * tokens,
        logit=second * tokens,
        log_mass=[x * tokens for x in mass],
        nats_at=nats and [0.4 * nats, 0.1 * nats, 0.2 * nats, 0.3 * nats],
        nats_counts=[tokens - 1, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        nats_by_entropy=nats and [0.2 * nats, 0.1 * nats, 0.2 * nats, 0.3 * nats, 0.2 * nats],
        tokens_by_entropy=[1, 0, 1, 1, tokens - 3],
        nats_largest=0.2,
    )


HAND = beside(__file__, "by_hand.yaml")
VALUES = HAND["values"]


def by_hand():
    """Two prompts and one that failed."""
    nats = {"a": distortion(9, 0.9), "b": distortion(5, 0.1)}
    answered = [sample(id, **fields, distortion=nats[id]) for id, fields in HAND["samples"].items()]
    return [*answered, FailedSample("c", "prompt too long")]


STUDENT = 12.7062
"""t of one degree of freedom."""
TAU, LENGTH = math.exp(STUDENT * 2 / 15), math.exp(STUDENT * 8 / 35)
"""±(4/12 − 2/5), ±(3/7 − 1/5): each prompt in the logarithm."""
INTERVALS = {
    "tau": (2.4 / TAU, 2.4 * TAU),
    "accept_len": (1.4 / LENGTH, 1.4 * LENGTH),
    "acceptance_rate": (0.0, 7 / 18 + STUDENT / 27),  # a share is not below 0
    "tokens_per_s": None,  # two timed prompts say too little
    "distortion": (0.0, 1 / 14 + STUDENT * 2 * (0.9 - 9 / 14) / 14),
}


@pytest.mark.parametrize(
    "name", [name for name, metric in METRICS.items() if metric.adds is not None]
)
def test_each_metric_by_hand(name):
    """Its value, its interval, and what it adds to a comparison item by item."""
    numbers, metric = summed(by_hand()), METRICS[name]
    value, interval = numbers.value(name), numbers.interval(name)
    assert value == (None if VALUES[name] is None else pytest.approx(VALUES[name]))
    assert (getattr(numbers, name), getattr(numbers, f"{name}_ci95")) == (value, interval)
    if name in INTERVALS:
        assert interval == (INTERVALS[name] and pytest.approx(INTERVALS[name], rel=1e-5))
    items = numbers.by_item(name)
    assert bool(items) == metric.compared or value is None
    if items and value is not None:
        sums = np.sum([*items.values()], axis=0)
        assert metric.statistic(sums) == pytest.approx(value)


def test_what_is_counted_by_hand():
    numbers = summed(by_hand())
    plain = json.loads(json.dumps(numbers.plain(), allow_nan=False))
    counts = {"n": 2, "failed": 1, "tokens": 14, "cycles": 5, "timed": 2}
    known = counts | {"prefill_s": 1.0, "decode_s": 4.0, "tau": 2.4, "acceptance_8": None}
    assert known.items() <= plain.items() and "coverage" not in plain
    assert plain["tau_ci95"] == [*numbers.tau_ci95]
    assert numbers.accuracy_ci95[0] < 0.5 < numbers.accuracy_ci95[1]


def test_distortion_of_a_rule_that_keeps_what_the_target_excludes_is_not_a_number():
    numbers = summed([sample("a", [3], distortion=distortion(4, None)), sample("b", [2])])
    assert numbers.distortion is numbers.distortion_ci95 is None and numbers.distortion_tv == 0.2


def test_the_distance_from_the_target_is_of_the_prompts_that_have_one():
    held = [
        sample("a", [3], distortion=distortion(4, 0.4)),
        sample("b", [3], distortion=distortion(4, 0.8)),
        sample("c", [3]),
    ]
    assert distance_of(held).value == pytest.approx(0.15)
    infinite = sample("d", [3], distortion=distortion(4, None))
    assert distance_of(held[1:]) is distance_of([*held[:2], infinite]) is None


def test_given_values_take_the_place_of_computed_ones():
    values = {"coverage": 0.5, "coverage_ci95": (0.4, 0.6), "tau_ci95": (1.0, 2.0)}
    shown = summed([sample("a", [2])]).with_values(**values)
    assert {name: getattr(shown, name) for name in values} == values and shown.tau == 2.0
    for wrong in (lambda: shown.with_values(tempo=1.0), lambda: shown.tempo):
        with pytest.raises((ValueError, AttributeError), match="tempo"):
            wrong()


def test_a_score_over_several_tries_is_of_items():
    def of(item, *scores):
        return [
            sample(f"{item}/{i}", [2], score=score, group=item) for i, score in enumerate(scores)
        ]

    assert summed([*of("a", 1.0, 0.0, 0.0, 0.0), *of("b", 1.0, 1.0, 0.0, 1.0)]).accuracy == 0.5
    scored = summed([*of("a", *[1.0] * 3, *[0.0] * 7), *of("b", *[0.0] * 10)], metric="pass@4")
    assert scored.accuracy == pytest.approx((1 - 35 / 210) / 2) and scored.accuracy_change == 0.0
    partly = summed(of("a", 0.5, 1.0, 0.5), metric="pass@2", proportion=False)
    assert partly.accuracy == pytest.approx(2 / 3), "half a score is no pass"


def test_the_autoregressive_cell_is_its_own_baseline():
    numbers = summed([sample(i, [1] * 5, autoregressive=True) for i in "abc"])
    known = {"tau": 1.0, "accept_len": 0.0, "draft_share": 0.0, "acceptance_rate": None}
    known |= dict.fromkeys(
        ("speedup", "answer_speedup_modelled", "recovery", "precision", "length_ratio"), 1.0
    )
    known |= {"truncated_share": 0.0, "baseline_truncated_share": 0.0, "accuracy_change": None}
    assert {name: numbers.value(name) for name in known} == known and numbers.cycles == 15
    assert numbers.speedup_ci95 is numbers.length_ratio_ci95 is None
    assert numbers.baseline_tokens_per_s == numbers.tokens_per_s
    assert numbers.baseline_accuracy_ci95 == numbers.accuracy_ci95


def test_unknown_is_none_never_a_number():
    for samples in ([], [FailedSample("a", "boom")]):
        numbers = summed(samples)
        assert numbers.failed == len(samples)
        values = [(numbers.value(name), numbers.interval(name)) for name in METRICS]
        assert set(values) == {(None, None)}
    unscored = summed([sample(i, [2], score=None) for i in "ab"])
    assert unscored.accuracy is unscored.recovery is unscored.accuracy_ci95 is None
    assert unscored.speedup is not None
    assert summed([sample("a", [3], nll=2.0), sample("b", [1])]).nll is None
    hopeless = summed([sample(i, [2], score=0.0) for i in "ab"])
    assert hopeless.accuracy == 0.0 and hopeless.recovery is hopeless.recovery_ci95 is None


def test_the_interval_of_recovery_is_a_paired_one():
    scores = [(1.0, 1.0)] * 30 + [(1.0, 0.0)] * 10 + [(0.0, 0.0)] * 10
    numbers = summed(
        [sample(str(i), [2], score=own, base_score=base) for i, (base, own) in enumerate(scores)]
    )
    low, high = numbers.recovery_ci95
    assert numbers.recovery == pytest.approx(0.75) and 0.58 < low < 0.66 and 0.84 < high < 0.91


def test_a_prompt_answered_by_the_prefill_has_no_ratio_of_its_own():
    instant = sample("z", [], decode_s=0.0, base_decode_s=0.0)
    others = [sample(i, [3], decode_s=1.0) for i in "abc"]
    numbers = summed([*others, instant])
    assert numbers.decode_speedup_ci95 == pytest.approx([2.0, 2.0])
    assert numbers.speedup == pytest.approx((3 * 2.5 + 0.5) / (3 * 1.5 + 0.5))
    assert summed([instant]).decode_speedup is None and summed([instant]).speedup == 1.0


def test_scores_that_are_no_proportion_get_a_bootstrap_interval():
    numbers = summed(
        [sample(str(i), [2], score=i / 10) for i in range(10)], "rouge_l", proportion=False
    )
    assert numbers.metric == "rouge_l"
    low, high = numbers.accuracy_ci95
    assert numbers.accuracy == pytest.approx(0.45) and low < 0.45 < high
    with pytest.raises(ValueError, match="not 0 or 1"):
        summed([sample("a", [2], score=0.5)])


def test_inconsistent_samples_are_refused():
    alone = sample("b", [1], autoregressive=True)
    for samples, said in (
        ([sample("a", [1])] * 2, "more than once"),
        ([sample("a", [1]), alone], "1 of 2 samples are their own baseline"),
        ([sample("a", [1], accepted=[])], "1 cycles"),
    ):
        with pytest.raises(ValueError, match=said):
            summed(samples)


def test_diversity_by_hand():
    answers = ("a", [1, 2, 1, 2]), ("a", [1, 2, 3, 2]), ("b", [5]), ("b", [5])
    runs = [synthetic_cells.sample(id, ids) for id, ids in answers]
    numbers = summed([]).with_values(**diversity(runs))
    assert (numbers.distinct_2, numbers.distinct_2_ci95) == (pytest.approx(4 / 6), None), (
        "5 alone has no neighbour"
    )
    assert (numbers.self_agreement, numbers.self_agreement_ci95) == (7 / 8, (3 / 4, 1.0))
    assert numbers.repeats == 2


def test_what_the_timed_pass_decoded_otherwise_and_what_was_not_timed():
    *timed, other = (sample(i, [3, 3]) for i in "abc")
    clock = replace(other.timed, own=replace(other.timed.own, parted=FirstDifference(3, 1e-6)))
    untimed = replace(sample("d", [1, 1, 1, 1]), timed=None)
    numbers = summed([*timed, replace(other, timed=clock), untimed])
    assert (numbers.n, numbers.timed) == (4, 3)
    assert (numbers.tau, numbers.timed_tau, numbers.repeatable) == (22 / 10, 3, 2 / 3)
    nothing = summed([untimed])
    assert (nothing.timed, nothing.tau) == (0, 1.0)
    assert nothing.speedup is nothing.speedup_modelled is nothing.repeatable is None
