"""A judge's pass over the answers of finished cells.

Every reply is on disk before the next question is asked, and a question that has its reply is never asked again: after
a crash of either side the same command goes on where it was.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from bench.config.cell import Cell
from bench.config.errors import one_line
from bench.config.judge_options import Judge
from bench.judging.client import JudgeError, ask
from bench.judging.scores import Verdict, format_judge_summary, judge_summary
from bench.run.console import console
from results.store.cells import CellFolder, Store
from results.store.errors import StoreError
from results.store.judge_replies import Verdicts, key_of
from results.store.summary import JudgeSummary
from tasks.base import Prompt, TaskError
from tasks.dataset import answers
from tasks.judge_prompts import (
    KOREAN,
    MODES,
    SOURCES,
    JudgePrompts,
    Question,
    is_penalised,
    shipped_references,
)


def judge_cells(cells: Sequence[Cell], judge: Judge, store: Store) -> int:
    """Judge every cell whose task is meant for it, and put what came of it into its summary. 0 when all is judged."""
    status = 0
    for cell in cells:
        if cell.load_task().judged is None:
            continue
        folder = store.cell(cell.name)
        summary = folder.summary()
        if summary is None or not summary.n:
            continue  # said among the failures already
        try:
            with folder.lock():
                found = judge_cell(cell, folder, judge, store)
                folder.write_summary(summary.with_values(judge=found))
            console().print(f"judged: {cell.name}: {format_judge_summary(found)}", highlight=False, soft_wrap=True)
        except (JudgeError, TaskError, StoreError) as error:
            print(f"failed: {cell.name}: {one_line(error)}", file=sys.stderr)
            status = 1
            if isinstance(error, JudgeError):
                break  # it would not answer about the other cells either
    return status


def judge_cell(cell: Cell, folder: CellFolder, judge: Judge, store: Store) -> JudgeSummary:
    """Ask what has no reply yet; the numbers over all replies. Raises JudgeError, TaskError, StoreError."""
    style = cell.load_task().judged
    mode = judge.mode or MODES[style]
    korean = style in KOREAN if judge.language_penalty is None else judge.language_penalty
    prompts = JudgePrompts(judge.prompts or SOURCES[style])
    questions = _questions(cell, folder, judge, store, mode, prompts)
    verdicts = Verdicts(folder.path)
    replies = verdicts.replies()
    judged = []
    for question in questions:
        body = judge.asked(question.messages)
        key = key_of({**body, "base_url": judge.base_url})
        if key not in replies:
            replies[key] = ask(judge, body)
            about = {"id": question.id, "turn": question.turn, "swapped": question.swapped, "judge": judge.model}
            verdicts.append(key, replies[key], about)
        reply = replies[key]
        value = prompts.rating(reply) if mode == "single" else prompts.choice(reply, question.swapped)
        judged.append(Verdict(question, value, is_penalised(question) if korean and mode == "single" else None))
    return judge_summary(judged, judge.model, mode)


def _questions(cell: Cell, folder: CellFolder, judge: Judge, store: Store, mode: str,
               prompts: JudgePrompts) -> list[Question]:
    by_id = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    given = judge.references or shipped_references(cell.task.options.path)
    references = answers(given, "judge.references") if given else {}
    samples = folder.good_samples()
    if mode == "single":
        return [question for sample in samples for question in
                prompts.single(by_id[sample.id], sample.texts, references.get(sample.id))]
    others = _opponents(cell, judge, store, by_id)
    return [question for sample in samples for question in
            prompts.pairwise(by_id[sample.id], sample.texts, others[sample.id])]


def _opponents(cell: Cell, judge: Judge, store: Store, by_id: Mapping[str, Prompt]) -> dict[str, Sequence[str]]:
    """Prompt id -> the answers to compare with. Raises TaskError where one is missing."""
    if judge.against == "baseline":
        twin = cell.baseline().name
        others = {sample.id: sample.texts for sample in store.cell(twin).good_samples()}
        remedy = f"judge.against=baseline: {twin} has no answer to it; run method=ar with the same settings"
    else:
        targets = {name: prompt.reference.get("target") for name, prompt in by_id.items()}
        others = {name: [target] for name, target in targets.items() if target is not None}
        remedy = "the data holds no answer to it; take judge.against=baseline"
    if missing := [name for name in by_id if name not in others]:
        raise TaskError(f"prompt {missing[0]} has nothing to be compared with: {remedy}")
    return others
