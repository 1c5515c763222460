"""An LLM judge's pass over the answers of finished cells.

Each reply is on disk before the next question is asked, and a question that has a reply is never asked again.
Re-running the same command resumes judging.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from bench.run.judging.client import JudgeError, ask
from bench.run.judging.scores import Verdict, format_judge_summary, judge_summary
from bench.run.requested_cell import JUDGED
from results.store.compared import Compared
from results.store.errors import StoreError
from results.store.judge import JudgeReplies, question_key
from results.store.reasons import one_line
from results.store.redaction import redacted
from tasks.base import JudgeStyle, Prompt, Task, TaskError
from tasks.dataset import answers
from tasks.judge_prompts import (
    KOREAN,
    MODES,
    SOURCES,
    JudgePrompts,
    Question,
    is_penalised,
    refuse_control_tokens,
    shipped_references,
)

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.config.settings import Judge
    from bench.run.session import Session
    from results.store.cells import CellFolder
    from results.store.judge import JudgeSummary, Opponent
    from results.store.sample import Sample


def judge_cells(cells: Sequence[Cell], session: Session, against: Opponent = "reference") -> int:
    """Judge every measured cell whose task is graded by an LLM, and add the scores to its summary. `against` is what
    win rates compare with where the command gives no `judge.against`.

    Prints one line per cell. Returns 0 when every cell was judged, else 1."""
    status = 0
    for cell in cells:
        task, folder = cell.load_task(), session.folder(cell)
        if task.judged is None or not any(isinstance(one, Compared) for one in folder.measured() or ()):
            continue  # a cell without answers is listed among the failures
        try:
            with folder.lock(wait=True):
                scores = judge_cell(cell, task, task.judged, folder, session, against)
                folder.write_record(JUDGED, {"asked": cell.n, **scores.model_dump(mode="json", exclude_unset=True)})
            session.summaries.clear()
            session.write_summary(cell)
            session.print(f"judged: {cell.name}: {format_judge_summary(scores)}", soft_wrap=True)
        except (JudgeError, TaskError, StoreError) as error:
            print(f"failed: {cell.name}: {one_line(error)}", file=sys.stderr)
            status = 1
            if isinstance(error, JudgeError):
                break  # it would not answer about the other cells either
    return status


def judge_cell(cell: Cell, task: Task, style: JudgeStyle, folder: CellFolder,
               session: Session, against: Opponent) -> JudgeSummary:
    """Ask every question that has no reply yet, and score all replies. Raises JudgeError, TaskError, StoreError."""
    judge = session.settings.judge
    mode = judge.mode or MODES[style]
    korean = style in KOREAN if judge.language_penalty is None else judge.language_penalty
    prompts = JudgePrompts(judge.prompts or SOURCES[style])
    samples = folder.good_samples()
    by_id = {prompt.id: prompt for prompt in task.prompts(cell.n, cell.seed)}
    if mode == "single":
        questions = _single(samples, by_id, prompts, task, judge)
    else:
        others = _other_answers(cell, session, by_id, judge.against or against)
        questions = [question for sample in samples
                     for question in prompts.pairwise(by_id[sample.id], sample.texts, others[sample.id])]
    replies = JudgeReplies(folder.path)
    verdicts = []
    for question, reply in zip(questions, _replies(questions, judge, replies), strict=True):
        penalised = is_penalised(question) if korean and mode == "single" else None
        verdicts.append(Verdict(question, _value(prompts, question, reply, mode), penalised))
    return judge_summary(verdicts, judge.model or "", mode)


def _single(samples: Sequence[Sample], by_id: Mapping[str, Prompt], prompts: JudgePrompts, task: Task,
            judge: Judge) -> list[Question]:
    given = judge.references or shipped_references(task.path)
    references = answers(given, "judge.references") if given else {}
    return [question for sample in samples
            for question in prompts.single(by_id[sample.id], sample.texts, references.get(sample.id))]


def _other_answers(cell: Cell, session: Session, by_id: Mapping[str, Prompt],
                   against: Opponent) -> Mapping[str, Sequence[str]]:
    """Prompt id -> the answers to compare with. Raises TaskError where one is missing."""
    others: dict[str, Sequence[str]]
    if against == "baseline":
        baseline = cell.baseline()
        others = {sample.id: sample.texts for sample in session.folder(baseline).good_samples()}
        remedy = f"judge.against=baseline: {baseline.name} has no answer to it; run method=ar with the same settings"
    else:
        targets = {name: prompt.reference.get("target") for name, prompt in by_id.items()}
        others = {name: [target] for name, target in targets.items() if target is not None}
        remedy = "the data holds no answer to it; take judge.against=baseline"
    if missing := [name for name in by_id if name not in others]:
        raise TaskError(f"prompt {missing[0]} has nothing to be compared with: {remedy}")
    return others


def _replies(questions: Sequence[Question], judge: Judge, stored: JudgeReplies) -> list[str]:
    """The reply to each question, from the store or from the judge. Raises TaskError, before any is asked, for one with
    a control token, and as `ask`."""
    if judge.control_tokens == "refuse":
        refuse_control_tokens(questions)
    known = stored.read()
    replies = []
    for question in questions:
        body = judge.asked(question.messages)
        key = question_key({**body, "base_url": redacted(judge.base_url or "")})
        if key not in known:
            known[key] = ask(judge, body)
            about = {"id": question.id, "turn": question.turn, "swapped": question.swapped, "judge": judge.model}
            stored.append(key, known[key], about)
        replies.append(known[key])
    return replies


def _value(prompts: JudgePrompts, question: Question, reply: str, mode: Literal["single", "pairwise"]) -> float | None:
    return prompts.rating(reply) if mode == "single" else prompts.choice(reply, question.swapped)
