"""An LLM judge's pass over the answers of finished cells, behind an OpenAI-compatible endpoint.

Each reply is on disk before the next question is asked, and a question that has a reply is never
asked again. Re-running the same command resumes judging. Neither API key nor password is shown."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bench.run.endpoint import Endpoint, NoReply
from bench.run.requested_cell import JUDGED
from results.metrics import intervals
from results.store.errors import StoreError, one_line, redacted
from results.store.sample import Compared, JudgeSummary
from tasks.base import JudgeStyle, Prompt, Task, TaskError
from tasks.dataset import answers
from tasks.judge_prompts import (
    KOREAN,
    MODES,
    NEED_REFERENCE,
    SOURCES,
    JudgePrompts,
    Question,
    is_penalised,
    refuse_control_tokens,
    shipped_references,
)

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import JudgeOptions
    from bench.run.session import Session
    from results.store.cells import CellFolder
    from results.store.sample import Opponent


class JudgeError(RuntimeError):
    """The endpoint cannot be used. The message is one line."""


def ask(judge: JudgeOptions, body: Mapping[str, Any]) -> str:
    """The judge's reply to one request body.

    Refused connections, time-outs and server faults are retried, with a wait that doubles. Raises
    JudgeError when no attempt succeeds, ConfigError for a key that cannot be sent; neither shows
    the key. Redirects are not followed: the key is for this host alone."""
    endpoint = Endpoint(
        judge.base_url or "", judge.key(), judge.timeout_s, judge.retries, judge.wait_s
    )
    try:
        return endpoint.post(
            "/chat/completions", body, "chat completion", lambda reply: _content(reply.json())
        )
    except NoReply as error:
        raise JudgeError(
            f"judge.base_url={redacted(judge.base_url or '')}: no reply from {judge.model} "
            f"({error}); replies so far are kept, re-running the same command resumes judging"
        ) from error


def _content(completion: Any) -> str:
    """The text of a chat completion; empty where the model gave none. Raises LookupError,
    TypeError."""
    content = completion["choices"][0]["message"]["content"]
    if not isinstance(content, str | None):
        raise TypeError(f"content must be text, got {type(content).__name__}")
    return content or ""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """What the judge replied to one question.

    question   what was asked
    value      a grade of 1 to 10, or 1 / 0.5 / 0 for won, tied, lost; None where the reply holds no
               verdict
    penalised  is the answer in a wrong language? None where its language does not matter
    """

    question: Question
    value: float | None
    penalised: bool | None = None

    @property
    def counted(self) -> float | None:
        """The value that enters the score: the square root of a penalised grade."""
        return math.sqrt(self.value) if self.penalised and self.value is not None else self.value


def judge_summary(
    verdicts: Sequence[JudgeVerdict], model: str, mode: Literal["single", "pairwise"]
) -> JudgeSummary:
    """The score (single) or the win rate (pairwise) of a cell, with a 95% interval over prompts.

    MT-Bench's score is the mean grade over all turns. A win in one order of the two answers and a
    loss in the other is a tie. Replies without a verdict are left out; so are prompts with a
    verdict in one order only, because the judge favours the answer that stands first."""
    scores = _win_rate(verdicts) if mode == "pairwise" else _score(verdicts)
    unread = sum(verdict.value is None for verdict in verdicts)
    return JudgeSummary(model=model, mode=mode, **scores, replies=len(verdicts), unread=unread)


def _win_rate(verdicts: Sequence[JudgeVerdict]) -> dict[str, Any]:
    by_prompt: dict[str, list[float | None]] = defaultdict(list)
    for verdict in verdicts:
        by_prompt[verdict.question.id].append(verdict.value)
    read = [[value for value in values if value is not None] for values in by_prompt.values()]
    both_orders = [values for values in read if len(values) == 2]
    wins = [values[0] if values in ([1.0, 1.0], [0.0, 0.0]) else 0.5 for values in both_orders]
    return {
        "win_rate": _mean(wins),
        "win_first": _mean([first for first, _ in both_orders]),
        "win_second": _mean([second for _, second in both_orders]),
        "ci95": intervals.mean_interval(wins),
        "n": len(wins),
        "left_out": len(by_prompt) - len(wins),
    }


def _score(verdicts: Sequence[JudgeVerdict]) -> dict[str, Any]:
    by_prompt: dict[str, list[float]] = defaultdict(list)
    by_turn: dict[int, list[float]] = defaultdict(list)
    grades: list[float] = []
    for verdict in verdicts:
        if verdict.counted is not None:
            by_prompt[verdict.question.id].append(verdict.counted)
            by_turn[verdict.question.turn].append(verdict.counted)
            grades.append(verdict.counted)
    prompt_means = [sum(values) / len(values) for values in by_prompt.values()]
    scores: dict[str, Any] = {
        "score": _mean(grades),
        "ci95": intervals.mean_interval(prompt_means),
        "n": len(by_prompt),
    }
    scores |= {f"turn_{turn + 1}": _mean(values) for turn, values in sorted(by_turn.items())}
    if any(verdict.penalised is not None for verdict in verdicts):
        read = [verdict for verdict in verdicts if verdict.value is not None]
        scores |= {
            "penalised": sum(bool(verdict.penalised) for verdict in read),
            "unpenalised": _mean([verdict.value for verdict in read if verdict.value is not None]),
        }
    return scores


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def format_judge_summary(summary: JudgeSummary) -> str:
    """`score 6.21 [5.80, 6.60], judged by NAME: 80 prompts, turn 1 6.50, turn 2 5.92`."""
    name, form, value = "score", ".2f", summary.score
    if summary.mode == "pairwise":
        name, form, value = "win rate", ".1%", summary.win_rate
    shown = "–" if value is None else f"{value:{form}}"
    if summary.ci95 is not None:
        low, high = summary.ci95
        shown += f" [{low:{form}}, {high:{form}}]"
    return f"{name} {shown}, {summary.told}"


def judge_cells(cells: Sequence[Cell], session: Session, against: Opponent = "reference") -> int:
    """Judge every measured cell whose task is graded by an LLM, and add the scores to its summary.
    `against` is what win rates compare with where the command gives no `judge.against`.

    Prints one line per cell. Returns 0 when every cell was judged, else 1."""
    status = 0
    for cell in cells:
        task, folder = cell.load_task(), session.folder(cell)
        if task.judged is None or not any(
            isinstance(record, Compared) for record in folder.measured() or ()
        ):
            continue  # a cell without answers is listed among the failures
        try:
            with folder.lock(wait=True):
                scores = judge_cell(cell, task, task.judged, folder, session, against)
                folder.write_record(
                    JUDGED, {"asked": cell.n, **scores.model_dump(mode="json", exclude_unset=True)}
                )
            session.forget()
            session.write_summary(cell)
            session.print(f"judged: {cell.name}: {format_judge_summary(scores)}", soft_wrap=True)
        except (JudgeError, TaskError, StoreError) as error:
            print(f"failed: {cell.name}: {one_line(error)}", file=sys.stderr)
            status = 1
            if isinstance(error, JudgeError):
                break  # it would not answer about the other cells either
    return status


def judge_cell(
    cell: Cell,
    task: Task,
    style: JudgeStyle,
    folder: CellFolder,
    session: Session,
    against: Opponent,
) -> JudgeSummary:
    """Ask every question that has no reply yet, and score all replies. Raises JudgeError,
    TaskError, StoreError."""
    judge = session.settings.judge
    mode = MODES[style]
    korean = style in KOREAN if judge.language_penalty is None else judge.language_penalty
    prompts = JudgePrompts(judge.prompts or SOURCES[style])
    by_id = {prompt.id: prompt for prompt in cell.prompts()}
    beside: Mapping[str, Sequence[str]]
    if mode == "single":
        file = judge.references or shipped_references(task.path)
        beside = answers(file, "judge.references") if file else {}
    else:
        beside = _other_answers(cell, session, by_id, judge.against or against)
    questions: list[Question] = []
    for sample in folder.good_samples():
        prompt = by_id[sample.id]
        if mode == "single":
            questions += prompts.single(prompt, sample.texts, beside.get(sample.id))
        else:
            questions += prompts.pairwise(prompt, sample.texts, beside[sample.id])
    verdicts = []
    for question, reply in zip(questions, _replies(questions, judge, folder), strict=True):
        if mode == "pairwise":
            value, penalised = prompts.choice(reply, question.swapped), None
        else:
            value, penalised = prompts.rating(reply), is_penalised(question) if korean else None
        verdicts.append(JudgeVerdict(question, value, penalised))
    return judge_summary(verdicts, judge.model or "", mode)


def lacks_references(task: Task) -> bool:
    """Whether some questions of the task may be judged against reference answers that are not
    shipped."""
    single = task.judged is not None and MODES[task.judged] == "single"
    return single and shipped_references(task.path) is None


def check_references(cells: Sequence[Cell], judge: JudgeOptions) -> None:
    """Raises TaskError where the judge is to see reference answers that nobody gave, before
    anything is decoded."""
    if judge.references is not None:
        return
    for cell in {(cell.task.name, cell.n): cell for cell in cells}.values():
        if not lacks_references(cell.load_task()):
            continue
        for prompt in cell.prompts():
            category = prompt.reference.get("category")
            if category in NEED_REFERENCE:
                raise TaskError(
                    f"task={cell.task.name}: question {prompt.id} ({category}) is judged against a "
                    "reference answer; give judge.references=FILE, that of the benchmark's "
                    "repository in FastChat's answer format"
                )


def _other_answers(
    cell: Cell, session: Session, by_id: Mapping[str, Prompt], against: Opponent
) -> Mapping[str, Sequence[str]]:
    """Prompt id -> the answers to compare with. Raises TaskError where one is missing."""
    others: dict[str, Sequence[str]]
    if against == "baseline":
        baseline = cell.baseline()
        others = {sample.id: sample.texts for sample in session.folder(baseline).good_samples()}
        remedy = (
            f"judge.against=baseline: {baseline.name} has no answer to it; run method=ar with "
            "the same settings"
        )
    else:
        targets = {name: prompt.reference.get("target") for name, prompt in by_id.items()}
        others = {name: [target] for name, target in targets.items() if target is not None}
        remedy = "the data holds no answer to it; take judge.against=baseline"
    if missing := [name for name in by_id if name not in others]:
        raise TaskError(f"prompt {missing[0]} has nothing to be compared with: {remedy}")
    return others


def _replies(questions: Sequence[Question], judge: JudgeOptions, folder: CellFolder) -> list[str]:
    """The reply to each question, from the cell's folder, which is locked, or from the judge.
    Raises TaskError, before any is asked, for one with a control token, and as `ask`."""
    if judge.control_tokens == "refuse":
        refuse_control_tokens(questions)
    replies = folder.verdicts()
    keys = []
    for question in questions:
        body = judge.asked(question.messages)
        named = {**body, "base_url": redacted(judge.base_url or "")}
        asked = json.dumps(named, sort_keys=True, ensure_ascii=False)
        key = hashlib.sha256(asked.encode()).hexdigest()[:16]
        keys.append(key)
        if key not in replies:
            replies[key] = ask(judge, body)
            about = {
                "id": question.id,
                "turn": question.turn,
                "swapped": question.swapped,
                "judge": judge.model,
            }
            folder.append_verdict(key, replies[key], about)
    return [replies[key] for key in keys]
