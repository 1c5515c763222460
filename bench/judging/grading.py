"""A judge's pass over the answers of finished cells.

Every reply is on disk before the next question is asked, and a question that has its reply is never asked again: after
a crash of either side the same command goes on where it was.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.config.cell import Cell
from bench.config.errors import one_line
from bench.config.judge_options import Judge
from bench.judging.client import JudgeError, ask
from bench.run.console import console
from results.metrics import intervals
from results.store.cells import CellFolder, Store, StoreError
from results.store.judge_replies import Verdicts, key_of
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


@dataclass(frozen=True, slots=True)
class Judged:
    """One question with its value as the judge said it: a grade of 1 to 10, or 1 / 0.5 / 0; None where the reply says
    neither. `penalised`: the answer is in a wrong language; None where its language does not matter."""

    question: Question
    value: float | None
    penalised: bool | None = None

    @property
    def counted(self) -> float | None:
        """The value that goes into the numbers."""
        return math.sqrt(self.value) if self.penalised and self.value is not None else self.value


def judge_cells(cells: Sequence[Cell], judge: Judge, store: Store) -> int:
    """Judge every cell whose task is meant for it, and put what came of it into its summary. 0 when all is judged."""
    status = 0
    for cell in cells:
        if cell.load_task().judged is None:
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
        judged.append(Judged(question, value, is_penalised(question) if korean and mode == "single" else None))
    return {"model": judge.model, "mode": mode, **numbers(judged, mode)}


def _questions(cell: Cell, folder: CellFolder, judge: Judge, store: Store, mode: str,
               prompts: JudgePrompts) -> list[Question]:
    by_id = {prompt.id: prompt for prompt in cell.load_task().prompts(cell.n, cell.seed)}
    given = judge.references or shipped_references(cell.task.options.path)
    references = answers(given, "judge.references") if given else {}
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
    over prompts. `unread`: replies without a verdict, left out. `left_out` (pairwise): prompts without a verdict in
    both orders, left out too: in one order alone whoever stands first is favoured. `penalised` and `unpenalised` (where
    the language counts): grades of which the square root was taken, and the score as the judge said it."""
    found = _win_rate(judged) if mode == "pairwise" else _score(judged)
    return {**found, "replies": len(judged), "unread": sum(one.value is None for one in judged)}


def _win_rate(judged: Sequence[Judged]) -> dict[str, Any]:
    by_prompt: dict[str, list[float | None]] = defaultdict(list)
    for one in judged:
        by_prompt[one.question.id].append(one.value)
    whole = [found for found in by_prompt.values() if len(found) == 2 and None not in found]
    values = [found[0] if found in ([0.0, 0.0], [1.0, 1.0]) else 0.5 for found in whole]
    return {"win_rate": _mean(values), "ci95": _interval(values), "n": len(values),
            "left_out": len(by_prompt) - len(whole)}


def _score(judged: Sequence[Judged]) -> dict[str, Any]:
    by_prompt: dict[str, list[float]] = defaultdict(list)
    by_turn: dict[int, list[float]] = defaultdict(list)
    read = [one for one in judged if one.value is not None]
    for one in read:
        by_prompt[one.question.id].append(one.counted)
        by_turn[one.question.turn].append(one.counted)
    found = {"score": _mean([one.counted for one in read]),
             "ci95": _interval([_mean(values) for values in by_prompt.values()]), "n": len(by_prompt)}
    found |= {f"turn_{turn + 1}": _mean(values) for turn, values in sorted(by_turn.items())}
    if any(one.penalised is not None for one in judged):
        found |= {"penalised": sum(bool(one.penalised) for one in read),
                  "unpenalised": _mean([one.value for one in read])}
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _interval(values: Sequence[float]) -> list[float] | None:
    interval = intervals.mean_interval(values)
    return None if interval is None else list(interval)


def described_numbers(found: Mapping[str, Any]) -> str:
    """`score 6.21 [5.80, 6.60] by NAME, 80 prompts, turn 1 6.50, turn 2 5.92, 1 of 160 replies without a verdict`."""
    name = "win_rate" if "win_rate" in found else "score"
    if found[name] is None:
        what = "verdict" if found["unread"] == found["replies"] else "prompt with a verdict in both orders"
        return f"no {what} in {found['replies']} replies of {found['model']}"
    form = ".1%" if name == "win_rate" else ".2f"
    around = f" [{found['ci95'][0]:{form}}, {found['ci95'][1]:{form}}]" if found["ci95"] else ""
    turns = "".join(f", turn {turn} {found[f'turn_{turn}']:.2f}" for turn in range(1, 9) if f"turn_{turn}" in found)
    unread = f", {found['unread']} of {found['replies']} replies without a verdict" if found["unread"] else ""
    left = f", {found['left_out']} left out, without a verdict in both orders" if found.get("left_out") else ""
    language = (f", {found['penalised']} of {found['replies']} grades penalised as not Korean "
                f"({found['unpenalised']:.2f} without)" if found.get("penalised") else "")
    return (f"{name.replace('_', ' ')} {found[name]:{form}}{around} by {found['model']}, {found['n']} prompts"
            f"{left}{turns}{language}{unread}")
