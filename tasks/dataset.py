"""A benchmark that is one YAML: rows of a dataset, a template that makes a prompt of a row, a
scorer.

`conf/task/dataset.yaml` lists every option with its meaning; each benchmark's own YAML says what is
its own. Templates and expressions are Jinja over a row's fields. A row in FastChat's question
format (`turns`, and maybe `reference` and `question_id`), in which EAGLE, Spec-Bench and MT-Bench
ship their questions, is asked as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from tasks import templates
from tasks.base import (
    MOST_NEW_TOKENS,
    ControlTokens,
    JudgeStyle,
    LocalFile,
    Prompt,
    Score,
    Task,
    TaskError,
    TaskOptions,
)
from tasks.scorers import AnyScorer
from tasks.shots import Shots
from tasks.sources import RowSource, in_listed_order
from tasks.templates import TemplateFault

EXAMPLES = re.compile(r"{%[^%]*\bexamples\b")
"""A prompt's template that places the worked examples itself."""


class DatasetOptions(RowSource, TaskOptions):
    """The options of conf/task/dataset.yaml."""

    version: int = Field(ge=1)
    licence: str
    where: str | None = None
    ids: LocalFile | None = Field(None, exclude_if=lambda file: file is None)  # later, as `date`
    id: str | None = None
    prompt: str
    target: str | None = None
    keep: dict[str, str] = Field(default_factory=dict)
    shots: Shots = Field(default_factory=Shots)
    chat: bool = True
    # later
    control_tokens: ControlTokens = Field("refuse", exclude_if=lambda kind: kind == "refuse")
    system: str | None = None
    stop: tuple[str, ...] = ()
    history: Literal["own", "reference"] = "own"
    references: LocalFile | None = None
    samples: int = Field(1, ge=1, le=4096)
    pass_at: int = Field(1, ge=1)
    scorer: AnyScorer
    judged: JudgeStyle | None = None
    max_new_tokens: int = Field(512, ge=1, le=MOST_NEW_TOKENS)

    @model_validator(mode="after")
    def _can_be_scored(self) -> DatasetOptions:
        if self.pass_at > 1 and (self.scorer.metric != "pass@1" or self.pass_at > self.samples):
            raise ValueError(
                f"pass_at={self.pass_at}: needs a score that is pass@1, and as many samples "
                f"(there are {self.samples})"
            )
        if "" in self.stop:
            raise ValueError(
                "stop: '' ends every answer before its first token; give strings, or stop=[]"
            )
        # here, for prompts that cost hours may be decoded before the first score
        self.scorer.check_options()
        return self


class Dataset(Task):
    """A benchmark from the rows of a dataset."""

    def __init__(self, name: str, options: DatasetOptions) -> None:
        self.name, self.options = name, options
        self.version, self.stop = options.version, options.stop
        self.metric = f"pass@{options.pass_at}" if options.pass_at > 1 else options.scorer.metric
        self.proportion = options.scorer.proportion
        self.judged, self.path = options.judged, options.path

    def prompts(self, n: int | None = None, seed: int = 0) -> list[Prompt]:
        """The first `n` rows (all when None) in source order, `samples` prompts each. Raises
        TaskError."""
        o = self.options
        inside = {"examples": o.shots.rows()} if EXAMPLES.search(o.prompt) else {}
        shots = (
            []
            if inside
            else o.shots.messages(o.prompt, lambda text, row: self._filled(text, row, "an example"))
        )
        references = (
            answers(o.references, "task.references")
            if o.history == "reference" and o.references
            else {}
        )
        if o.history == "reference" and not references:
            raise TaskError(
                "task.history=reference: needs the answers to take for the model's own earlier "
                "ones; give task.references=FILE.jsonl in FastChat's answer format"
            )
        prompts: list[Prompt] = []
        seen: set[str] = set()
        for number, row in islice(self._rows(), n):
            prompt = self._prompt(number, row | inside, shots)
            if prompt.id in seen:
                raise TaskError(
                    f"{self._place(number)}: id {prompt.id!r} stands in an earlier row too"
                )
            seen.add(prompt.id)
            prompts.append(
                replace(self._with_history(prompt, references), control_tokens=o.control_tokens)
            )
        if not prompts:
            raise TaskError(
                f"{self.name}: no row is left; task.where={o.where} leaves out all of them"
            )
        return [sample for prompt in prompts for sample in _samples(prompt, o.samples)]

    def unscorable(self) -> str | None:
        return self.options.scorer.unscorable()

    def score(self, prompt: Prompt, texts: Sequence[str]) -> Score:
        """The scorer's score; there is none without a reference in the row."""
        return self.options.scorer.score(prompt.reference, texts)

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(row number from 1, row) of the rows that `where` keeps; of those that `ids` lists, in
        its order."""
        o = self.options
        rows = (
            (number, row)
            for number, row in enumerate(o.rows(self.name, "task.path"), start=1)
            if o.where is None or self._value(o.where, row, self._place(number))
        )
        return (
            rows
            if o.ids is None
            else in_listed_order(o.ids, rows, self._id, str(o.path or o.hub or o.files))
        )

    def _id(self, number: int, row: Mapping[str, Any]) -> str | None:
        """The row's own name, if it has one."""
        asked = "turns" in row or self.options.id is None
        name = (
            row.get("question_id")
            if asked
            else self._value(str(self.options.id), row, self._place(number))
        )
        return None if name is None else str(name)

    def _prompt(
        self, number: int, row: Mapping[str, Any], shots: Sequence[tuple[str, str]]
    ) -> Prompt:
        o, place = self.options, self._place(number)
        name = self._id(number, row) or f"{self.name}-{number - 1:04d}"
        if "turns" in row:
            turns, target = _turns(row, place)
            reference = {"category": row.get("category"), "target": target}
        else:
            turns = (self._filled(o.prompt, row, place),)
            target = None if o.target is None else self._filled(o.target, row, place)
            reference = {
                "target": target,
                **{key: self._value(value, row, place) for key, value in o.keep.items()},
            }
        if o.chat:
            said = [
                (role, text)
                for asked, answer in shots
                for role, text in (("user", asked), ("assistant", answer))
            ]
            return Prompt(
                name,
                turns=turns,
                system=o.system,
                prefix=tuple(said),
                reference=reference,
                date=o.date,
            )
        if len(turns) > 1:
            raise TaskError(f"{place}: {len(turns)} turns need task.chat=true")
        worked = "".join(f"{asked}{_joint(asked)}{answer}\n\n" for asked, answer in shots)
        opening = f"{o.system}\n\n" if o.system else ""
        return Prompt(name, text=f"{opening}{worked}{turns[0]}", reference=reference)

    def _with_history(self, prompt: Prompt, references: Mapping[str, tuple[str, ...]]) -> Prompt:
        """Answer earlier turns with the reference, so that every method sees the same later
        prompts."""
        if self.options.history == "own" or len(prompt.turns) < 2:
            return prompt
        if len(references.get(prompt.id, ())) < len(prompt.turns) - 1:
            raise TaskError(
                f"{self.options.references}: no answer to question {prompt.id}; give "
                "task.references with an answer to each, leave questions out with task.where, or "
                "take task.history=own"
            )
        return replace(prompt, history=references[prompt.id][: len(prompt.turns) - 1])

    def _filled(self, template: str, row: Mapping[str, Any], place: str) -> str:
        try:
            return templates.render(template, row)
        except TemplateFault as fault:
            named = "" if fault.undefined else f"template {template[:60]!r}: "
            raise TaskError(f"{place}: {named}{_reason(fault, row)}") from fault

    def _value(self, expression: str, row: Mapping[str, Any], place: str) -> Any:
        try:
            return templates.evaluate(expression, row)
        except TemplateFault as fault:
            raise TaskError(
                f"{place}: {'' if fault.undefined else f'{expression}: '}{_reason(fault, row)}"
            ) from fault

    def _place(self, number: int) -> str:
        return f"{self.options.path or self.options.hub or self.options.files}, row {number}"


def answers(path: Path, key: str) -> dict[str, tuple[str, ...]]:
    """Question id -> the answers to its turns, from a file in FastChat's answer format, given as
    `key`. Raises TaskError."""
    by_question = {}
    for number, row in enumerate(RowSource(path=path).rows("the answers", key), start=1):
        try:
            by_question[str(row["question_id"])] = tuple(map(str, row["choices"][0]["turns"]))
        except (KeyError, IndexError, TypeError) as error:
            complaint = "not an answer; it needs question_id and choices[0].turns"
            raise TaskError(f"{path}, row {number}: {complaint}") from error
    return by_question


def _turns(row: Mapping[str, Any], place: str) -> tuple[tuple[str, ...], str | None]:
    """The questions of a row in FastChat's format, and its reference as one text."""
    turns, reference = row["turns"], row.get("reference")
    if (
        not isinstance(turns, list)
        or not turns
        or not all(isinstance(turn, str) and turn for turn in turns)
    ):
        raise TaskError(f"{place}: turns must be a list of texts, got {str(turns)[:60]!r}")
    return tuple(turns), None if reference is None else "\n".join(map(str, reference))


def _samples(prompt: Prompt, samples: int) -> list[Prompt]:
    """`samples` prompts that differ in their id and hence in their random stream."""
    if samples == 1:
        return [prompt]
    return [
        replace(prompt, id=f"{prompt.id}/sample-{index}", group=prompt.id)
        for index in range(samples)
    ]


def _joint(asked: str) -> str:
    """The separator between a question and its answer in one text."""
    return "" if asked[-1:].isspace() else " "


def _reason(fault: TemplateFault, row: Mapping[str, Any]) -> str:
    """`'answer' is undefined` -> `no field 'answer'; the row has question`."""
    text = str(fault)
    if not fault.undefined:
        return text
    named = (
        f"no field {text.removesuffix(' is undefined')}" if text.endswith(" is undefined") else text
    )
    return f"{named}; the row has {', '.join(row)}"
