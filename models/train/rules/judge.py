"""`python -m models.train judge`: train AutoJudge's or Judge decoding's classifier
(conf/train_judge.yaml)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError
from rich.console import Console
from rich.progress import track

from bench.run.answer import context, think_end_of
from methods.batch import Generation
from methods.decode import Limits, Request, generate, text_of
from methods.method import Method, autoregressive
from methods.rules.classifiers import Classifier, Features
from models.train.options import PairOptions
from models.train.rules.classifier import Labelled, features, train
from results.store.errors import redacted_plain
from results.store.files import check_writable_file

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from tasks.base import Prompt, Score, Task


class TrainJudge(PairOptions):
    """conf/train_judge.yaml, which explains every field."""

    kind: Literal["autojudge", "judge"]
    labels: Path | None
    features: Features
    prompts: PositiveInt
    most: PositiveInt
    max_new_tokens: PositiveInt | None
    held_out: float = Field(gt=0, lt=1)
    iterations: PositiveInt
    seed: NonNegativeInt

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> TrainJudge:
        """The typed options of a composed configuration. Raises ValueError, one line."""
        settings = super().from_config(config)
        if settings.kind == "judge" and settings.labels is None:
            raise ValueError("kind=judge: learns from labels made by people; give labels=FILE")
        split = getattr(settings.task.options, "split", None)
        if (
            settings.labels is None
            and split == "test"
            and "train" in getattr(settings.task.options, "splits", ())
        ):
            raise ValueError(
                f"task={settings.task.name}: the labels would come from the problems that the "
                "classifier is tested on; give task.split=train"
            )
        return settings

    @property
    def used_features(self) -> Features:
        """Judge decoding reads the target's states alone, whatever `features` says."""
        return "target" if self.kind == "judge" else self.features


class _LabelRow(BaseModel):
    """A line of a file of labels."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)
    group: str
    ids: list[NonNegativeInt] = Field(min_length=1)
    important: Literal[0, 1]


def read_labels(path: Path) -> list[Labelled]:
    """Labels from a JSONL file. Raises ValueError, one line."""
    if not path.is_file():
        raise ValueError(
            f"labels={path}: no such file; give a JSONL file, or labels=null to mine them"
        )
    labels = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = _LabelRow.model_validate_json(line)
        except ValidationError as error:
            raise ValueError(
                f"labels={path}: line {number}: {error.errors()[0]['msg']}; a line is "
                '{"group": "prompt", "ids": [token ids], "important": 0 or 1}'
            ) from error
        labels.append(Labelled(row.group, row.ids, row.important))
    return labels


@torch.inference_mode()
def drafted(draft: LanguageModel, before: list[int], text: list[int]) -> list[int]:
    """The draft's most likely token at each position of `text`, given the target's tokens before
    it."""
    ids = [*before, *text]
    keep = torch.arange(len(before) - 1, len(ids) - 1, device=draft.device)
    out = draft.forward(
        torch.tensor([ids], device=draft.device), draft.new_cache(1, len(ids)), keep=keep
    )
    return out.logits[0].argmax(-1).tolist()


class Miner:
    """Labels for AutoJudge, one prompt at a time: does the draft's token in place of the target's
    change the answer?

    The target answers greedily; one forward gives the draft's choice at each position of the
    answer. At the first position where they differ, the draft's token replaces the target's and the
    target finishes greedily. If the final answer is unchanged, the token is unimportant and the new
    text is kept; otherwise it is important and the old text is kept. The search continues to the
    right. Source: garipovroma/autojudge, find_important_tokens.py.

    method  greedy autoregressive decoding of the target.
    draft   the draft model.
    task    extracts and scores final answers.
    limits  of an answer.
    most    mismatches of one prompt that are tried at most.
    """

    def __init__(
        self, method: Method, draft: LanguageModel, task: Task, limits: Limits, most: int
    ) -> None:
        if not task.proportion:
            raise ValueError(
                f"task={task.name}: its answers are not right or wrong (its score is not 0 or "
                "1), so no token can change them; give a task whose answers are, such as mini_gsm"
            )
        self.method = method
        self.draft = draft
        self.task = task
        self.limits = limits
        self.most = most

    def __call__(self, prompt: Prompt) -> list[dict[str, Any]]:
        """{"ids": context, text and draft token, "important": 0 or 1} for each mismatch, left to
        right; none where no answer can be extracted from the target's own text. Raises ValueError
        for a prompt of several turns."""
        if len(prompt.turns) > 1:
            raise ValueError(
                f"task={self.task.name}: {prompt.id} has {len(prompt.turns)} turns; take a task "
                "with one"
            )
        before = context(self.method.target, prompt, [])
        text = self._finish(before, [])
        reference, start_at = self._score(prompt, text), 0
        labels: list[dict[str, Any]] = []
        if reference.answer is None:  # no answer that a token could change
            return []
        while len(labels) < self.most:
            choices = drafted(self.draft, before, text)
            at = next((i for i in range(start_at, len(text)) if choices[i] != text[i]), None)
            if at is None:
                break
            start = [*text[:at], choices[at]]
            tried = self._finish(before, start)
            important = not same_answer(reference, self._score(prompt, tried))
            labels.append({"ids": [*before, *start], "important": int(important)})
            text = text if important else tried
            start_at = at + 1
        return labels

    def _finish(self, before: list[int], start: list[int]) -> list[int]:
        """`start` and the target's greedy continuation, within the limits of an answer."""
        left = self.limits.max_new_tokens - len(start)
        if left < 1 or (start and start[-1] in self.limits.eos_ids):
            return start
        limits = replace(self.limits, max_new_tokens=left)
        return (
            start + generate(self.method, [Request(before + start, "mining")], limits)[0].output_ids
        )

    def _score(self, prompt: Prompt, ids: list[int]) -> Score:
        stop, think_end = self.limits.stop, self.limits.think_end
        answered = Generation(output_ids=ids)
        text = text_of(answered, stop, self.method.target, think_end=think_end)
        return self.task.score(prompt, [text])


def same_answer(first: Score, second: Score) -> bool:
    """Whether both have the same extracted answer (possibly none) and the same value."""
    return first.answer == second.answer and first.value == second.value


def mined_labels(
    settings: TrainJudge, target: LanguageModel, draft: LanguageModel
) -> list[Labelled]:
    """Labels mined from the pair's own answers, prompt by prompt; those already in `work` are
    reused."""
    task = settings.load_task()
    limit = settings.max_new_tokens or settings.task.options.max_new_tokens
    greedy = autoregressive(target)
    think_end = think_end_of(settings.task.options, target)
    limits = Limits(limit, target.eos_ids, task.stop, think_end)
    miner = Miner(greedy, draft, task, limits, settings.most)
    identity = {
        "target": target.fingerprint,
        "draft": draft.fingerprint,
        "limit": limit,
        "most": settings.most,
        "task": settings.task.model_dump(mode="json"),
        "version": task.version,
    }
    prompts = task.prompts_of("train", settings.prompts)
    mined = settings.map_prompts(identity, prompts, miner, "mining labels")
    return [Labelled(name, row["ids"], row["important"]) for name, rows in mined for row in rows]


def classifier(
    settings: TrainJudge,
    target: LanguageModel,
    draft: LanguageModel | None,
    labels: Sequence[Labelled],
) -> Classifier:
    """The classifier trained on the labelled tokens, with its provenance. Raises ValueError, one
    line."""
    if settings.used_features == "target":
        draft = None
    rows = track(labels, "features", console=Console(stderr=True), disable=not sys.stderr.isatty())
    x = np.stack([features(target, draft, label.ids) for label in rows])
    y = np.array([label.important for label in labels])
    fitted, quality = train(
        x,
        y,
        [label.group for label in labels],
        weighted=settings.kind == "judge",
        share=settings.held_out,
        seed=settings.seed,
        iterations=settings.iterations,
    )
    plain = settings.model_dump(
        mode="json", exclude={"out", "work", "engine", "pair", "kind", "features"}
    )
    provenance = {
        **redacted_plain(plain),
        "dtype": settings.engine.dtype,
        "n": len(labels),
        "important": int(y.sum()),
        **quality,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    drafted: dict[str, Any] = (
        {}
        if draft is None
        else {"draft": settings.provenance_name(draft), "draft_fingerprint": draft.fingerprint}
    )
    return Classifier(
        kind=settings.kind,
        target=settings.provenance_name(target),
        fingerprint=target.fingerprint,
        **drafted,
        **fitted,
        features=settings.used_features,
        provenance=provenance,
    )


def run(config: Mapping[str, Any]) -> None:
    """Read or mine labels, train, write the classifier. Raises ValueError, ModelError,
    TaskError."""
    settings = TrainJudge.from_config(config)
    check_writable_file(settings.out, "out")
    labels = None if settings.labels is None else read_labels(settings.labels)
    target = settings.load_model("target")
    draft = (
        settings.load_model("draft") if labels is None or settings.used_features == "both" else None
    )
    if labels is None:
        assert draft is not None
        labels = mined_labels(settings, target, draft)
    trained = classifier(settings, target, draft, labels)
    settings.out.write_text(json.dumps(trained.model_dump(), indent=None) + "\n", encoding="utf-8")
    numbers = trained.provenance
    print(
        f"{settings.out}: {numbers['n']} tokens, {numbers['important']} important; held-out "
        f"ROC-AUC {numbers['auc']:.3f} (n {numbers['n_held_out']}), C {numbers['c']:.3g}\n  "
        "thresholds to try: " + ", ".join(f"{t:.3g}" for t in trained.thresholds[1::5])
    )
