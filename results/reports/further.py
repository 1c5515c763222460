"""The metrics of the tables that follow a report's own (`TableSpec.tables`)."""

from __future__ import annotations

from results.metrics import equal_d

ANSWER_COSTS = (
    "answer_speedup_modelled",
    "length_ratio",
    "accuracy_change",
    "truncated_share",
    "answer_speedup",
    "decode_speedup",
    "loop_share",
)
TRACED_COSTS = ("out_of_head_1k",)
"""The metrics of the second table of a report that shows accuracy."""
TITLES = {"answers": "cost of an answer", "spans": "reasoning and answer"}
"""Name of a further table -> how it is headed, where that is not the name."""
EQUAL_D = tuple(metric.name for metric in equal_d.EQUAL_D)
VERDICT = (*EQUAL_D, "tau", "nll", "accuracy")
"""What the verdict stands on, and beside it."""
SETTINGS = ("tau", "speedup_modelled", "speedup", "accuracy")
"""The metrics of the table of every setting."""
