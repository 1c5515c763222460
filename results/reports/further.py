"""The metrics of the tables that follow a report's own."""

from __future__ import annotations

ANSWER_COSTS = ("answer_speedup_modelled", "answer_speedup", "length_ratio", "length_ratio_median", "pass_ratio",
                "pass_ratio_median", "pass_ratio_strict", "cap_hit_share", "cap_hit_change", "loop_share",
                "loop_change", "no_answer_share", "no_answer_change",
                "accuracy_change")
TRACED_COSTS = ("out_of_head_1k",)
"""The metrics of the second table of a report that shows accuracy."""
OVER_BEST = ("over_best_tau", "over_best_tau_relaxed", "over_best_tau_greedier", "over_best_length",
             "over_best_answer", "over_best_accuracy")
"""The metrics of the table that compares rows with the best lossless one."""
SETTINGS = ("tau", "answer_speedup_modelled", "answer_speedup", "speedup_modelled", "speedup", "length_ratio",
            "length_adjusted_speedup", "accuracy")
"""The metrics of the table of every setting."""
