"""The record of summary.json: every metric of a cell under a declared name."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from results.store.gain import GainTests
from results.store.judge_summary import JudgeSummary
from results.store.samples_digest import SamplesDigest

Interval = tuple[float, float]
"""(low, high), at 95% unless stated otherwise."""


DEFINITIONS = 1
"""Counts changes of how stored metrics are computed: a summary of earlier ones is computed anew from the samples."""


class Summary(BaseModel):
    """The metrics of one cell; results/metrics/catalog.py defines those that tables and figures show.

    What was not measured is None. The file holds the fields that were set. `X_ci95` is the 95% interval of X; shares,
    accuracies and losses are fractions of 1. Fields without an entry in the catalog:

    asked                prompts that the command asked for; None: all of the task
    definitions          `DEFINITIONS` of the version that computed it
    samples              the samples file that it is about; set when it is written
    n, failed            prompts measured, prompts that failed and are left out
    timed, timed_tau     prompts timed, and τ of these
    retimed, stalled     of these, prompts timed again after a stall of the machine, in the cell or its baseline; those
                         whose last repeat was stalled too
    metric               name of the task's score
    unscored             answers that the machine could not score, of the cell and of its baseline: no accuracy is known
    tokens, cycles       emitted tokens, draft–verify cycles
    prefill_s, decode_s  seconds, summed over the timed prompts
    accept_histogram     [i]: cycles with i accepted draft tokens
    accept_by_position   [i]: share of cycles in which the draft token at position i (from 0) was accepted
    phases               seconds of the parts of a cycle, from the profiling pass: mean over prompts of their medians;
                         phases_ci95: their intervals, and that of `other`, accept and commit together
    events               how often each flag of the rule was set on an emitted token
    pass_at_k            k -> pass@k, where items have several samples; baseline_pass_at_k that of the baseline
    repeats              most answers to one prompt
    lossless_accuracy    accuracy of the lossless rule in the same cell
    tau_gain_match       how the parts of `tau_gain` were told apart
    judge                scores of an LLM judge
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    asked: int | None = None
    definitions: int = 0
    samples: SamplesDigest | None = None
    n: int
    failed: int
    timed: int
    timed_tau: float | None = None
    retimed: int = 0
    stalled: int = 0
    metric: str
    unscored: int = 0
    tokens: int
    cycles: int

    tau: float | None
    tau_ci95: Interval | None
    accept_len: float | None
    accept_len_ci95: Interval | None
    draft_share: float | None
    draft_share_ci95: Interval | None = None
    relaxed_share: float | None
    relaxed_share_ci95: Interval | None = None
    greedier_share: float | None
    greedier_share_ci95: Interval | None = None
    accept_histogram: list[int]
    accept_by_position: list[float]
    pruned_share: float | None = None
    pruned_share_ci95: Interval | None = None
    events: dict[str, int] = {}

    tokens_per_s: float | None
    tokens_per_s_ci95: Interval | None
    baseline_tokens_per_s: float | None
    baseline_tokens_per_s_ci95: Interval | None = None
    speedup: float | None
    speedup_ci95: Interval | None
    speedup_modelled: float | None
    speedup_modelled_ci95: Interval | None
    token_ms: float | None
    timed_cycle_ms: float | None
    repeatable: float | None
    speedup_mean_of_ratios: float | None
    speedup_mean_of_ratios_ci95: Interval | None = None
    e2e_tokens_per_s: float | None
    e2e_tokens_per_s_ci95: Interval | None = None
    prefill_s: float
    decode_s: float

    speedup_ideal: float | None
    efficiency: float | None
    roofline: float | None = None
    phases: dict[str, float] | None
    phases_ci95: dict[str, Interval] = {}
    prefill_share: float | None
    prefill_share_ci95: Interval | None = None
    draft_time_share: float | None
    draft_time_share_ci95: Interval | None = None
    verify_share: float | None
    verify_share_ci95: Interval | None = None
    accept_share: float | None
    accept_share_ci95: Interval | None = None
    cycle_ms: float | None
    cycle_ms_ci95: Interval | None = None
    forward_ms: float | None
    forward_ms_ci95: Interval | None = None
    head_ms: float | None
    head_ms_ci95: Interval | None = None
    head_share: float | None
    head_share_ci95: Interval | None = None

    accuracy: float | None
    accuracy_ci95: Interval | None
    baseline_accuracy: float | None
    baseline_accuracy_ci95: Interval | None
    accuracy_change: float | None = None
    accuracy_change_ci95: Interval | None = None
    recovery: float | None
    recovery_ci95: Interval | None = None
    mcnemar_p: float | None
    pass_at_k: dict[str, float] = {}
    baseline_pass_at_k: dict[str, float] = {}
    precision: float | None
    precision_ci95: Interval | None = None
    edit_similarity: float | None
    edit_similarity_ci95: Interval | None = None

    answer_speedup: float | None = None
    answer_speedup_ci95: Interval | None = None
    answer_speedup_modelled: float | None = None
    answer_speedup_modelled_ci95: Interval | None = None
    length_adjusted_speedup: float | None = None
    length_adjusted_speedup_ci95: Interval | None = None
    length_ratio: float | None = None
    length_ratio_ci95: Interval | None = None
    length_ratio_median: float | None = None
    length_ratio_median_ci95: Interval | None = None
    nodes_per_cycle: float | None = None
    forwards_per_cycle: float | None = None
    pass_ratio: float | None = None
    pass_ratio_ci95: Interval | None = None
    pass_ratio_median: float | None = None
    pass_ratio_median_ci95: Interval | None = None
    cap_hit_share: float | None = None
    cap_hit_share_ci95: Interval | None = None
    cap_hit_change: float | None = None
    cap_hit_change_ci95: Interval | None = None
    loop_share: float | None = None
    loop_share_ci95: Interval | None = None
    loop_change: float | None = None
    loop_change_ci95: Interval | None = None
    no_answer_share: float | None = None
    no_answer_share_ci95: Interval | None = None
    no_answer_change: float | None = None
    no_answer_change_ci95: Interval | None = None
    baseline_cap_hit_share: float | None = None
    baseline_loop_share: float | None = None
    baseline_no_answer_share: float | None = None

    nll: float | None
    nll_ci95: Interval | None
    baseline_nll: float | None
    baseline_nll_ci95: Interval | None
    distinct_2: float | None
    distinct_2_ci95: Interval | None = None
    self_agreement: float | None
    self_agreement_ci95: Interval | None = None
    repeats: int

    # Set when other cells of the store are known: repeats, the lossless rule, a judge.
    lossless_accuracy: float | None = None
    pass_ratio_strict: float | None = None
    pass_ratio_strict_ci95: Interval | None = None
    tau_gain: float | None = None
    tau_gain_ci95: Interval | None = None
    tau_gain_relaxed: float | None = None
    tau_gain_relaxed_ci95: Interval | None = None
    tau_gain_greedier: float | None = None
    tau_gain_greedier_ci95: Interval | None = None
    tau_gain_q: float | None = None
    tau_gain_q_ci95: Interval | None = None
    tau_gain_match: str | None = None
    tau_gain_temperature: float | None = None
    tau_gain_temperature_ci95: Interval | None = None
    tau_gain_greedier_by_score: float | None = None
    tau_gain_greedier_by_score_ci95: Interval | None = None
    tau_gain_relaxed_by_score: float | None = None
    tau_gain_relaxed_by_score_ci95: Interval | None = None
    tau_gain_argmax: float | None = None
    tau_gain_argmax_ci95: Interval | None = None
    judge: JudgeSummary | None = None

    # Set by the reports that read traces, judge or compare settings; never in the file.
    judge_score: float | None = None
    judge_score_ci95: Interval | None = None
    win_rate: float | None = None
    win_rate_ci95: Interval | None = None
    over_best_tau: float | None = None
    over_best_tau_ci95: Interval | None = None
    over_best_length: float | None = None
    over_best_length_ci95: Interval | None = None
    over_best_answer: float | None = None
    over_best_answer_ci95: Interval | None = None
    over_best_accuracy: float | None = None
    over_best_accuracy_ci95: Interval | None = None
    over_best_tests: GainTests | None = None
    frontier_speed: float | None = None
    frontier_speed_ci95: Interval | None = None
    frontier_answer: float | None = None
    frontier_answer_ci95: Interval | None = None
    frontier_tau: float | None = None
    frontier_tau_ci95: Interval | None = None
    frontier_temperature: float | None = None
    frontier_temperature_ci95: Interval | None = None
    frontier_same_speed: float | None = None
    frontier_same_speed_ci95: Interval | None = None
    frontier_nll: float | None = None
    frontier_nll_ci95: Interval | None = None
    quality_loss: float | None = None
    quality_loss_ci95: Interval | None = None
    out_of_head_1k: float | None = None
    out_of_head_1k_ci95: Interval | None = None
    coverage: float | None = None
    coverage_ci95: Interval | None = None
    coverage_differing: float | None = None
    coverage_differing_ci95: Interval | None = None
    coverage_emb: float | None = None
    coverage_emb_ci95: Interval | None = None
    coverage_logit: float | None = None
    coverage_logit_ci95: Interval | None = None
    majority_1: float | None = None
    majority_1_ci95: Interval | None = None
    majority_2: float | None = None
    majority_2_ci95: Interval | None = None
    majority_3: float | None = None
    majority_3_ci95: Interval | None = None
    majority_4: float | None = None
    majority_4_ci95: Interval | None = None
    majority_5: float | None = None
    majority_5_ci95: Interval | None = None
    majority_p_1: float | None = None
    majority_p_1_ci95: Interval | None = None
    majority_p_2: float | None = None
    majority_p_2_ci95: Interval | None = None
    majority_p_3: float | None = None
    majority_p_3_ci95: Interval | None = None
    majority_p_4: float | None = None
    majority_p_4_ci95: Interval | None = None
    majority_p_5: float | None = None
    majority_p_5_ci95: Interval | None = None
    js_dispersed_draft: float | None = None
    js_dispersed_draft_ci95: Interval | None = None
    js_dispersed_heads: float | None = None
    js_dispersed_heads_ci95: Interval | None = None
    js_dispersed_share: float | None = None
    js_dispersed_share_ci95: Interval | None = None
    js_concentrated_draft: float | None = None
    js_concentrated_draft_ci95: Interval | None = None
    js_concentrated_heads: float | None = None
    js_concentrated_heads_ci95: Interval | None = None
    js_concentrated_share: float | None = None
    js_concentrated_share_ci95: Interval | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_the_curve(cls, given: Any) -> Any:
        """Leave out metrics that are no more, and parts of `tau_gain` in older summaries, not matched on the curve of
        lossless decoding."""
        if not isinstance(given, dict):
            return given
        gone = ("greedy_", "other_q_")
        old = gone if "tau_gain_match" in given else (*gone, "tau_gain_r", "tau_gain_g", "tau_gain_q")
        return {name: given[name] for name in given if not name.startswith(old)}

    def plain(self) -> dict[str, Any]:
        """The fields that were set, as JSON holds them."""
        return self.model_dump(mode="json", exclude_unset=True)

    def with_values(self, **values: Any) -> Summary:
        """This summary with further fields set. Raises ValueError for a name that is no field."""
        return Summary.model_validate({name: getattr(self, name) for name in self.model_fields_set} | values)

    def without(self, prefix: str) -> Summary:
        """This summary without the fields whose names begin so."""
        return Summary.model_validate({name: getattr(self, name) for name in self.model_fields_set
                                       if not name.startswith(prefix)})
