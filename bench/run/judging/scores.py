"""From a judge's verdicts on one cell to its score or win rate."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from results.metrics import intervals
from results.store.judge import JudgeSummary

if TYPE_CHECKING:
    from tasks.judge_prompts import Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge replied to one question.

    question   what was asked
    value      a grade of 1 to 10, or 1 / 0.5 / 0 for won, tied, lost; None where the reply holds no verdict
    penalised  is the answer in a wrong language? None where its language does not matter
    """

    question: Question
    value: float | None
    penalised: bool | None = None

    @property
    def counted(self) -> float | None:
        """The value that enters the score: the square root of a penalised grade."""
        return math.sqrt(self.value) if self.penalised and self.value is not None else self.value


def judge_summary(verdicts: Sequence[Verdict], model: str, mode: Literal["single", "pairwise"]) -> JudgeSummary:
    """The score (single) or the win rate (pairwise) of a cell, with a 95% interval over prompts.

    MT-Bench's score is the mean grade over all turns. A win in one order of the two answers and a loss in the other is
    a tie. Replies without a verdict are left out; so are prompts with a verdict in one order only, because the judge
    favours the answer that stands first."""
    scores = _win_rate(verdicts) if mode == "pairwise" else _score(verdicts)
    unread = sum(verdict.value is None for verdict in verdicts)
    return JudgeSummary(model=model, mode=mode, **scores, replies=len(verdicts), unread=unread)


def _win_rate(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    by_prompt: dict[str, list[float | None]] = defaultdict(list)
    for verdict in verdicts:
        by_prompt[verdict.question.id].append(verdict.value)
    read = [[value for value in values if value is not None] for values in by_prompt.values()]
    both_orders = [values for values in read if len(values) == 2]
    wins = [1.0 if values == [1.0, 1.0] else 0.0 if values == [0.0, 0.0] else 0.5 for values in both_orders]
    first, second = ([values[order] for values in both_orders] for order in (0, 1))
    return {"win_rate": _mean(wins), "win_first": _mean(first), "win_second": _mean(second),
            "ci95": intervals.mean_interval(wins), "n": len(wins), "left_out": len(by_prompt) - len(wins)}


def _score(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    by_prompt: dict[str, list[float]] = defaultdict(list)
    by_turn: dict[int, list[float]] = defaultdict(list)
    grades: list[float] = []
    for verdict in verdicts:
        if verdict.counted is not None:
            by_prompt[verdict.question.id].append(verdict.counted)
            by_turn[verdict.question.turn].append(verdict.counted)
            grades.append(verdict.counted)
    prompt_means = [sum(own) / len(own) for own in by_prompt.values()]
    scores: dict[str, Any] = {"score": _mean(grades), "ci95": intervals.mean_interval(prompt_means),
                              "n": len(by_prompt)}
    scores |= {f"turn_{turn + 1}": _mean(own) for turn, own in sorted(by_turn.items())}
    if any(verdict.penalised is not None for verdict in verdicts):
        read = [verdict for verdict in verdicts if verdict.value is not None]
        scores |= {"penalised": sum(bool(verdict.penalised) for verdict in read),
                   "unpenalised": _mean([verdict.value for verdict in read if verdict.value is not None])}
    return scores


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def format_judge_summary(summary: JudgeSummary) -> str:
    """`score 6.21 [5.80, 6.60] by NAME, 80 prompts, turn 1 6.50, turn 2 5.92, 1 of 160 replies without a verdict`."""
    pairwise = summary.mode == "pairwise"
    value = summary.win_rate if pairwise else summary.score
    if value is None:
        what = "verdict" if summary.unread == summary.replies else "prompt with a verdict in both orders"
        return f"no {what} in {summary.replies} replies of {summary.model}"
    name, form = ("win rate", ".1%") if pairwise else ("score", ".2f")
    interval = "" if summary.ci95 is None else f" [{summary.ci95[0]:{form}}, {summary.ci95[1]:{form}}]"
    parts = [f"{name} {value:{form}}{interval} by {summary.model}", f"{summary.n} prompts"]
    if summary.left_out:
        parts.append(f"{summary.left_out} left out, without a verdict in both orders")
    parts += [f"{turn.replace('_', ' ')} {score:.2f}" for turn, score in summary.turns.items()]
    if summary.penalised:
        parts.append(f"{summary.penalised} of {summary.replies} grades penalised as not Korean "
                     f"({summary.unpenalised:.2f} without)")
    if summary.unread:
        parts.append(f"{summary.unread} of {summary.replies} replies without a verdict")
    return ", ".join(parts)
