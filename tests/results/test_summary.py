"""The metrics of a cell: hand-computed examples and identities that must hold for any samples."""

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.metrics.catalog import METRICS
from results.metrics.intervals import pass_at_k
from results.metrics.phases import NAMES
from results.metrics.summary import diversity, summarise
from results.store.sample import FailedSample
from results.store.summary import Summary
from results.store.timed import FirstDifference
from tests.helpers import synthetic_cells

KEYS = {
    "tau", "tau_ci95", "accept_len", "accept_len_ci95", "draft_share", "relaxed_share", "greedier_share",
    "accept_histogram",
    "accept_by_position", "tokens_per_s", "tokens_per_s_ci95", "baseline_tokens_per_s", "speedup", "speedup_ci95",
    "speedup_modelled", "speedup_modelled_ci95", "token_ms", "timed_cycle_ms", "repeatable", "timed", "timed_tau",
    "retimed", "stalled",
    "speedup_mean_of_ratios", "e2e_tokens_per_s", "accuracy", "accuracy_ci95", "baseline_accuracy",
    "baseline_accuracy_ci95", "recovery", "recovery_ci95", "mcnemar_p", "precision", "edit_similarity",
    "metric", "n", "failed", "tokens", "cycles", "prefill_s", "decode_s", "speedup_ideal", "efficiency",
    "phases", "roofline", "nll", "nll_ci95", "baseline_nll", "baseline_nll_ci95", "distinct_2", "distinct_2_ci95",
    "self_agreement", "self_agreement_ci95",
    "repeats", "draft_share_ci95", "relaxed_share_ci95", "greedier_share_ci95", "baseline_tokens_per_s_ci95",
    "speedup_mean_of_ratios_ci95", "e2e_tokens_per_s_ci95", "precision_ci95", "edit_similarity_ci95",
    "accuracy_change", "accuracy_change_ci95", "baseline_cap_hit_share", "baseline_loop_share",
    "baseline_no_answer_share", *NAMES, *(f"{name}_ci95" for name in NAMES),
    *(f"{name}{end}" for end in ("", "_ci95") for name in (
        "answer_speedup", "answer_speedup_modelled", "length_adjusted_speedup", "length_ratio", "length_ratio_median",
        "pass_ratio", "pass_ratio_median", "cap_hit_share", "cap_hit_change",
        "loop_share", "loop_change", "no_answer_share", "no_answer_change")),
}


def sample(id, committed, accepted, *, ids=None, score=1.0, base_ids=None, base_score=None, decode_s=1.0,
           base_decode_s=2.0, prefill_s=0.5, autoregressive=False, **fields):
    """A timed prompt; its baseline gives the same answer where nothing else is said."""
    ids = list(range(1 + sum(committed))) if ids is None else ids
    own = synthetic_cells.sample(id, ids, committed=committed, accepted=accepted, score=score, **fields)
    base_ids = ids if base_ids is None else base_ids
    steps = len(base_ids) - 1
    base = synthetic_cells.sample(id, base_ids, score=score if base_score is None else base_score,
                                  committed=[1] * steps, accepted=[0] * steps)
    return synthetic_cells.compared(own, None if autoregressive else base, decode_s=decode_s,
                                    base_decode_s=base_decode_s, prefill_s=prefill_s)


def summary(samples, metric="exact_match", proportion=True):
    return summarise(samples, metric=metric, proportion=proportion)


def test_every_number_of_a_summary_is_in_the_catalog():
    numbers = {name for name, field in Summary.model_fields.items() if field.annotation == float | None}
    assert numbers == set(METRICS)


def test_a_summary_takes_intervals_as_json_holds_them():
    shown = summary([sample("a", [2], [1])]).with_values(coverage=0.5, coverage_ci95=[0.4, 0.6])
    assert shown.coverage_ci95 == (0.4, 0.6)
    with pytest.raises(ValueError, match="tempo"):
        shown.with_values(tempo=1.0)


def test_by_hand():
    found = summary([
        sample("a", [3, 1, 4], [2, 0, 3], decode_s=1.0, relaxed=1),        # 9 tokens
        sample("b", [2, 2], [1, 1], decode_s=3.0, score=0.0, greedier=2,   # 5 tokens
               base_ids=[0, 1, 2, 9], base_score=1.0),
        FailedSample("c", "prompt longer than the context"),
    ])
    assert found.model_fields_set == KEYS
    assert (found.n, found.failed, found.tokens, found.cycles) == (2, 1, 14, 5)
    assert found.tau == pytest.approx(12 / 5) and found.accept_len == pytest.approx(7 / 5)
    assert found.tau_ci95 == pytest.approx([2.0, 8 / 3]), "two prompts: both b or both a"
    assert found.accept_len_ci95 == pytest.approx([1.0, 5 / 3])
    factor = math.exp(12.7062 * 11 / 14)  # t of one degree of freedom; ±(9/7 − 1/2): each prompt in the logarithm
    assert found.tokens_per_s_ci95 == pytest.approx([3.5 / factor, 3.5 * factor], rel=1e-4)
    assert found.draft_share == pytest.approx(7 / 14)
    assert found.relaxed_share == pytest.approx(1 / 14) and found.greedier_share == pytest.approx(2 / 14)
    assert found.accept_histogram == [1, 2, 1, 1]
    assert found.accept_by_position == pytest.approx([4 / 5, 2 / 5, 1 / 5])
    assert found.tokens_per_s == pytest.approx(14 / 4) and found.baseline_tokens_per_s == pytest.approx(13 / 4)
    assert found.speedup == pytest.approx(14 / 13)
    assert found.speedup_mean_of_ratios == pytest.approx(((9 / 1) / (9 / 2) + (5 / 3) / (4 / 2)) / 2)
    assert found.e2e_tokens_per_s == pytest.approx(14 / 5)
    assert (found.accuracy, found.baseline_accuracy, found.recovery) == (0.5, 1.0, 0.5)
    assert found.mcnemar_p == 1.0, "one disagreement says nothing"
    assert found.precision == 0.5
    assert found.edit_similarity == pytest.approx((1 + 3 / 5) / 2)
    assert found.accuracy_ci95[0] < 0.5 < found.accuracy_ci95[1]


@pytest.mark.parametrize("groups", [[[0.5, 1.0]], [[1.0, 1.0], [0.0, 0.25]], []])
def test_fractional_scores_have_no_pass_at_k(groups):
    assert pass_at_k(groups) == {}
    assert pass_at_k([[0.0, 1.0], [1.0, 1.0]]) == {"1": 0.75}


def test_several_samples_of_an_item_give_pass_at_k():
    def of(item, *scores):
        return [sample(f"{item}/{i}", [2], [1], score=score, group=item) for i, score in enumerate(scores)]

    found = summary([*of("a", 1.0, 0.0, 0.0, 0.0), *of("b", 1.0, 1.0, 0.0, 1.0)])
    assert found.model_fields_set == KEYS | {"pass_at_k", "baseline_pass_at_k"}
    assert found.pass_at_k == found.baseline_pass_at_k == pytest.approx({"1": 0.5, "4": 1.0})
    assert found.accuracy == 0.5 and found.mcnemar_p is None
    ten = summary([*of("a", *[1.0] * 3, *[0.0] * 7), *of("b", *[0.0] * 10)])
    assert ten.pass_at_k == pytest.approx({"1": 0.15, "4": (1 - 35 / 210) / 2, "10": 0.5})
    scored = summary([*of("a", *[1.0] * 3, *[0.0] * 7), *of("b", *[0.0] * 10)], metric="pass@4")
    assert scored.accuracy == pytest.approx(ten.pass_at_k["4"]) and scored.accuracy_change == 0.0


def test_the_autoregressive_cell_is_its_own_baseline():
    found = summary([sample(i, [1] * 5, [0] * 5, autoregressive=True) for i in "abc"])
    assert found.tau == 1.0 and found.accept_len == 0.0 and found.draft_share == 0.0
    assert found.accept_histogram == [15] and found.accept_by_position == []
    assert found.speedup == found.speedup_mean_of_ratios == found.recovery == found.precision == 1.0
    assert found.speedup_ci95 is None and found.mcnemar_p is None
    assert found.baseline_tokens_per_s == found.tokens_per_s
    assert found.baseline_accuracy_ci95 == found.accuracy_ci95


def test_unknown_is_none_never_a_number():
    for samples in ([], [FailedSample("a", "boom")]):
        found = summary(samples)
        assert found.model_fields_set == KEYS and found.failed == len(samples)
        unknown = {name for name, value in found if value is None}
        assert unknown >= {"tau", "accept_len", "speedup", "speedup_ci95", "accuracy", "accuracy_ci95", "precision"}
    unscored = summary([sample(i, [2], [1], score=None) for i in "ab"])
    assert unscored.accuracy is unscored.recovery is unscored.mcnemar_p is unscored.accuracy_ci95 is None
    assert unscored.speedup is not None
    hopeless = summary([sample(i, [2], [1], score=0.0) for i in "ab"])
    assert hopeless.accuracy == 0.0 and hopeless.recovery is hopeless.recovery_ci95 is None


def test_the_interval_of_recovery_is_a_paired_one():
    scores = [(1.0, 1.0)] * 30 + [(1.0, 0.0)] * 10 + [(0.0, 0.0)] * 10
    found = summary([sample(str(i), [2], [1], score=own, base_score=base) for i, (base, own) in enumerate(scores)])
    low, high = found.recovery_ci95
    assert found.recovery == pytest.approx(0.75) and 0.58 < low < 0.66 and 0.84 < high < 0.91



def test_a_prompt_answered_by_the_prefill_has_no_ratio_of_its_own():
    instant = sample("z", [], [], decode_s=0.0, base_decode_s=0.0)
    others = [sample(i, [3], [2], decode_s=1.0) for i in "abc"]
    found = summary([*others, instant])
    assert found.speedup_mean_of_ratios == pytest.approx(2.0) and found.speedup_ci95 == pytest.approx([2.0, 2.0])
    assert summary([instant]).speedup is None


def test_a_draft_cut_by_the_end_of_text_counts_only_what_was_emitted():
    found = summary([sample("a", [2], [5])])  # five accepted, an end-of-text token was the second
    assert found.draft_share == pytest.approx(2 / 3) and found.accept_len == 5.0


def test_scores_that_are_no_proportion_get_a_bootstrap_interval():
    found = summary([sample(str(i), [2], [1], score=i / 10) for i in range(10)], "rouge_l", proportion=False)
    assert found.metric == "rouge_l" and found.mcnemar_p is None
    low, high = found.accuracy_ci95
    assert found.accuracy == pytest.approx(0.45) and low < 0.45 < high
    with pytest.raises(ValueError, match="not 0 or 1"):
        summary([sample("a", [2], [1], score=0.5)])


def test_inconsistent_samples_are_refused():
    with pytest.raises(ValueError, match="more than once"):
        summary([sample("a", [1], [0]), sample("a", [1], [0])])
    with pytest.raises(ValueError, match="1 of 2 samples are their own baseline"):
        summary([sample("a", [1], [0]), sample("b", [1], [0], autoregressive=True)])
    with pytest.raises(ValueError, match="1 cycles"):
        summary([sample("a", [1], [])])


K = 7


@st.composite
def cells(draw):
    samples = []
    for i in range(draw(st.integers(1, 6))):
        accepted = draw(st.lists(st.integers(0, K), min_size=1, max_size=8))
        committed = [a + 1 for a in accepted]
        base_ids = draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))
        samples.append(sample(f"p{i}", committed, accepted, decode_s=draw(st.floats(0.1, 9)),
                              score=float(draw(st.booleans())), relaxed=draw(st.integers(0, sum(accepted))),
                              base_ids=base_ids, base_decode_s=draw(st.floats(0.1, 9)),
                              base_score=float(draw(st.booleans()))))
    return samples


@settings(max_examples=25, deadline=None)
@given(cells(), st.randoms(use_true_random=False))
def test_identities(samples, rng: random.Random):
    found = summary(samples)
    assert 1 <= found.tau <= K + 1
    assert found.tau == pytest.approx(found.accept_len + 1), "nothing was truncated"
    assert found.accept_len == pytest.approx(sum(found.accept_by_position))
    assert sum(found.accept_histogram) == found.cycles
    assert found.accept_by_position == sorted(found.accept_by_position, reverse=True)
    assert 0 <= found.relaxed_share <= found.draft_share < 1
    assert found.speedup == pytest.approx(found.tokens_per_s / found.baseline_tokens_per_s)
    if found.speedup_ci95:
        low, high = found.speedup_ci95
        assert low <= high
    shuffled = samples[:]
    rng.shuffle(shuffled)
    assert summary(shuffled) == found, "the order of the prompts must not matter"
    assert Summary.model_validate_json(json.dumps(found.plain(), allow_nan=False)) == found


def test_diversity_by_hand():
    runs = [synthetic_cells.sample(id, ids) for id, ids in
            (("a", [1, 2, 1, 2]), ("a", [1, 2, 3, 2]), ("b", [5]), ("b", [5]))]
    found = diversity(runs)
    assert found == {"distinct_2": 4 / 6, "distinct_2_ci95": None, "self_agreement": (3 / 4 + 1) / 2,
                     "self_agreement_ci95": (3 / 4, 1.0), "repeats": 2}
    assert set(diversity([]).values()) == {None, 0}


def test_likelihood_is_pooled_over_tokens_and_unknown_where_one_is():
    runs = [sample("a", [3], [2], nll=2.0), sample("b", [1], [0], nll=5.0)]
    assert summary(runs).nll == pytest.approx(7 / 6) and summary(runs).baseline_nll is None
    assert summary([runs[0], sample("c", [1], [0])]).nll is None


def test_the_modelled_speedup_by_hand():
    """τ of all prompts × median token time ÷ median cycle time; the untimed prompt counts for τ alone."""
    timed = [sample(i, [3, 3], [2, 2], decode_s=2 * cycle, base_decode_s=6 * token)
             for i, cycle, token in (("a", 0.2, 0.1), ("b", 0.3, 0.1), ("c", 0.9, 0.4))]
    untimed = replace(sample("d", [1, 1, 1, 1], [0, 0, 0, 0]), timed=None)
    found = summary([*timed, untimed])
    tau = 22 / 10
    assert (found.n, found.timed, found.tau) == (4, 3, tau)
    assert (found.token_ms, found.timed_cycle_ms) == (pytest.approx(200), pytest.approx(1400 / 3))
    assert found.speedup_modelled == pytest.approx(tau * 0.2 / (1.4 / 3))
    low, high = found.speedup_modelled_ci95
    assert low < found.speedup_modelled < high and low < tau * 0.4 / 0.9 < high, "both passes are resampled"
    assert found.speedup == pytest.approx((21 / 2.8) / (21 / 3.6)), "the timed prompts alone"
    assert found.repeatable == 1.0
    own = replace(timed[0].timed.own, parted=FirstDifference(3, 1e-6))
    parted = replace(untimed, timed=replace(timed[0].timed, own=own))
    assert summary([*timed, parted]).repeatable == 0.75
    nothing = summary([untimed])
    assert nothing.timed == 0 and nothing.speedup is nothing.speedup_modelled is nothing.repeatable is None
    assert nothing.tau == 1.0


