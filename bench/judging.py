"""A judge's pass over the answers of finished cells.

Every reply is on disk before the next question is asked, and a question that has its reply is never asked again: after
a crash of either side the same command goes on where it was.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cell import Cell
from bench.closing import console
from bench.errors import one_line
from bench.judge import Judge, JudgeError, ask
from results import stats
from results.store import CellFolder, Store, StoreError
from results.verdicts import Verdicts, key_of
from tasks.base import Prompt, TaskError
from tasks.dataset import answers
from tasks.judging import MODES, SOURCES, JudgePrompts, Question


@dataclass(frozen=True, slots=True)
class Judged:
    """One question with its value: a grade of 1 to 10, or 1 / 0.5 / 0; None where the reply says neither."""

    question: Question
    value: float | None


def judge_cells(cells: Sequence[Cell], judge: Judge, store: Store) -> int:
    """Judge every cell whose task is meant for it, and put what came of it into its summary. 0 when all is judged."""
    status = 0
    for cell in cells:
        if getattr(cell.task.options, "judged", None) is None:
            continue
        folder = store.cell(cell.name)
        summary = folder.summary()
        if summary is None or not summary["n"]:
            continue  # said among the failures already
        try:
            with folder.lock():
                found = judge_cell(cell, folder, judge, store)
                folder.write_summary({**summary, "judge": found})
            console().print(f"judged: {cell.name}: {described_numbers(found)}", highlight=False, soft_wrap=True)
        except (JudgeError, TaskError, StoreError) as error:
            print(f"failed: {cell.name}: {one_line(error)}", file=sys.stderr)
            status = 1
            if isinstance(error, JudgeError):
                break  # it would not answer about the other cells either
    return status


def judge_cell(cell: Cell, folder: CellFolder, judge: Judge, store: Store) -> dict[str, Any]:
    """Ask what has no reply yet; the numbers over all replies. Raises JudgeError, TaskError, StoreError."""
    options = cell.task.options
    mode = judge.mode or MODES[options.judged]
    prompts = JudgePrompts(judge.prompts or SOURCES[options.judged])
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
        judged.append(Judged(question, value))
    return {"model": judge.model, "mode": mode, **numbers(judged, mode)}


def _questions(cell: Cell, folder: CellFolder, judge: Judge, store: Store, mode: str,
               prompts: JudgePrompts) -> list[Question]:
    by_id = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    references = answers(judge.references) if judge.references else {}
    samples = [sample for sample in folder.samples() if "error" not in sample]
    if mode == "single":
        return [question for sample in samples for question in
                prompts.single(by_id[sample["id"]], sample["texts"], references.get(sample["id"]))]
    others = _opponents(cell, judge, store, by_id)
    return [question for sample in samples for question in
            prompts.pairwise(by_id[sample["id"]], sample["texts"], others[sample["id"]])]


def _opponents(cell: Cell, judge: Judge, store: Store, by_id: Mapping[str, Prompt]) -> dict[str, Sequence[str]]:
    """Prompt id -> the answers to compare with. Raises TaskError where one is missing."""
    if judge.against == "baseline":
        twin = cell.baseline().name
        others = {sample["id"]: sample["texts"] for sample in store.cell(twin).samples() if "error" not in sample}
        remedy = f"judge.against=baseline: {twin} has no answer to it; run method=ar with the same settings"
    else:
        targets = {name: prompt.reference.get("target") for name, prompt in by_id.items()}
        others = {name: [target] for name, target in targets.items() if target is not None}
        remedy = "the data holds no answer to it; take judge.against=baseline"
    if missing := [name for name in by_id if name not in others]:
        raise TaskError(f"prompt {missing[0]} has nothing to be compared with: {remedy}")
    return others


def numbers(judged: Sequence[Judged], mode: str) -> dict[str, Any]:
    """MT-Bench's score is the mean over all turns; a win in one order and a loss in the other is a tie. Intervals are
    over prompts. `unread`: replies without a verdict, left out."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    by_turn: dict[int, list[float]] = defaultdict(list)
    for one in judged:
        if one.value is not None:
            by_prompt[one.question.id].append(one.value)
            by_turn[one.question.turn].append(one.value)
    values = [sum(found) / len(found) for found in by_prompt.values()]
    if mode == "pairwise":
        values = [value if value in (0.0, 1.0) else 0.5 for value in values]
    all_turns = [value for found in by_turn.values() for value in found]
    score = values if mode == "pairwise" else all_turns
    interval = stats.mean_interval(values)
    found: dict[str, Any] = {
        "win_rate" if mode == "pairwise" else "score": sum(score) / len(score) if score else None,
        "ci95": None if interval is None else list(interval),
        "n": len(values),
        "replies": len(judged),
        "unread": sum(one.value is None for one in judged),
    }
    if mode == "single":
        found |= {f"turn_{turn + 1}": sum(value) / len(value) for turn, value in sorted(by_turn.items())}
    return found


def described_numbers(found: Mapping[str, Any]) -> str:
    """`score 6.21 [5.80, 6.60] by NAME, 80 prompts, turn 1 6.50, turn 2 5.92, 1 reply without a verdict`."""
    name = "win_rate" if "win_rate" in found else "score"
    if found[name] is None:
        return f"no verdict in {found['replies']} replies of {found['model']}"
    form = ".1%" if name == "win_rate" else ".2f"
    around = f" [{found['ci95'][0]:{form}}, {found['ci95'][1]:{form}}]" if found["ci95"] else ""
    turns = "".join(f", turn {turn} {found[f'turn_{turn}']:.2f}" for turn in range(1, 9) if f"turn_{turn}" in found)
    unread = f", {found['unread']} of {found['replies']} replies without a verdict" if found["unread"] else ""
    return (f"{name.replace('_', ' ')} {found[name]:{form}}{around} by {found['model']}, {found['n']} prompts"
            f"{turns}{unread}")
