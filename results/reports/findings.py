"""The findings on a user's own prompts: what was measured of each setting, and the advice that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from results.metrics.intervals import Interval
from results.metrics.summary import Summary
from results.reports.advice import Advice, Candidate
from results.reports.spec import Coords

SHOWN = ("n", "failed", "tau", "tau_ci95", "speedup", "answer_speedup",
         "answer_speedup_modelled", "length_ratio", "length_ratio_ci95", "cap_hit_share",
         "no_answer_share", "precision", "edit_similarity", "accuracy", "accuracy_ci95",
         "baseline_accuracy", "nll", "baseline_nll", "tokens_per_s", "baseline_tokens_per_s")
"""Fields of the summary that workload.json repeats."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How quality is measured.

    measure   the task's score, or agreement with plain decoding.
    right     items that plain decoding answers correctly; None without a score.
    """

    measure: Literal["score", "agreement"]
    right: float | None


@dataclass(frozen=True, slots=True)
class SettingResult:
    """One measured setting.

    coords      its coordinates in the report.
    overrides   the overrides that distinguish it.
    cell        the name of its cell.
    summary     the cell's metrics.
    candidate   the estimates that the advice uses.
    """

    coords: Coords
    overrides: tuple[str, ...]
    cell: str
    summary: Summary
    candidate: Candidate

    @property
    def method(self) -> str:
        return self.coords[1]

    def estimates(self) -> dict[str, Any]:
        """The loss, and the intervals over items for this setting alone, as fields of a summary."""
        loss, answer, by_token = self.candidate.loss, self.candidate.speedup, self.candidate.by_token
        return {"quality_loss": loss.value, "quality_loss_ci95": loss.alone, "speedup_ci95": by_token.alone,
                "answer_speedup_modelled_ci95": answer.alone}

    def plain(self) -> dict[str, Any]:
        """The setting as JSON holds it; `together`: intervals that hold for all settings at once."""
        candidate, metrics = self.candidate, self.summary.plain()
        return {"label": candidate.label, "overrides": list(self.overrides), "cell": self.cell,
                "exact": candidate.exact, **{name: metrics.get(name) for name in SHOWN}, **self.estimates(),
                "items": candidate.n, "together": {
                    "answer_speedup_modelled": candidate.speedup.interval, "speedup": candidate.by_token.interval,
                    "quality_loss": candidate.loss.interval}}


@dataclass(frozen=True, slots=True)
class CycleCost:
    """Milliseconds of the parts of a cycle in the profiling pass.

    draft_ms, verify_ms, other_ms   drafting; the target's forward; the decision, the walk and the bookkeeping.
    cycle_ms                        the whole cycle.
    token_ms                        a token of plain decoding in the same pass.
    prefill_ms                      the prefill.
    speedup                         the measured speedup.
    speedup_ideal                   the speedup if only drafts and forwards took time.
    intervals                       name of a part -> its interval, in seconds.
    """

    draft_ms: float
    verify_ms: float
    other_ms: float
    cycle_ms: float
    token_ms: float
    prefill_ms: float
    speedup: float | None
    speedup_ideal: float
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    @classmethod
    def from_summary(cls, summary: Summary) -> CycleCost | None:
        """None if no answer of the profiling pass had a cycle."""
        phases, ideal, tau = summary.phases, summary.speedup_ideal, summary.tau
        if not phases or not ideal or not tau:
            return None
        draft, verify = 1e3 * phases["draft"], 1e3 * phases["verify"]
        return cls(draft, verify, 1e3 * (phases["accept"] + phases["commit"]), 1e3 * phases["cycle"],
                   ideal * (draft + verify) / tau, 1e3 * phases["prefill"], summary.speedup, ideal,
                   summary.phases_ci95)

    def texts(self) -> list[str]:
        """The cost as a row of `COST_HEADER`, without the label."""
        parts = [f"{self._timed(part, name)} ({part / self.cycle_ms:.0%})"
                 for part, name in ((self.draft_ms, "draft"), (self.verify_ms, "verify"), (self.other_ms, "other"))]
        whole = [self._timed(part, name) for part, name in (
            (self.cycle_ms, "cycle"), (self.token_ms, ""), (self.prefill_ms, "prefill"))]
        speedups = ["–" if speedup is None else f"{speedup:.2f}×" for speedup in (self.speedup, self.speedup_ideal)]
        return [*parts, *whole, *speedups]

    def _timed(self, milliseconds: float, name: str) -> str:
        """`1.20 ms [1.10, 1.30]`, with the interval where one is known."""
        interval = self.intervals.get(name)
        ends = "" if interval is None else f" [{', '.join(f'{1e3 * end:.2f}' for end in interval)}]"
        return f"{milliseconds:.2f} ms{ends}"


COST_HEADER = ["Setting", "draft", "verify", "other", "cycle", "plain token", "prefill", "speedup", "ideal"]


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings on a workload.

    results   the measured settings.
    quality   how quality is measured.
    advice    what to do.
    best      the setting that the advice names, if any.
    costs     label of a setting -> the parts of its cycle.
    basis     sentences on what the advice is based on.
    command   the command that measures `best`; empty without one.
    """

    results: list[SettingResult]
    quality: Quality
    advice: Advice
    best: SettingResult | None
    costs: dict[str, CycleCost]
    basis: list[str]
    command: str

    def cost_rows(self) -> list[list[str]]:
        """The table of the parts of a cycle, its header first."""
        return [COST_HEADER, *([label, *cost.texts()] for label, cost in self.costs.items())]

    def plain_advice(self) -> dict[str, Any]:
        """The advice as JSON holds it."""
        return {**asdict(self.advice), "overrides": list(self.best.overrides) if self.best else [],
                "command": self.command}
