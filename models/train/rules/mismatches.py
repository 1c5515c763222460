"""`python -m models.train mismatches`: record a target's answers to training prompts, and what its
draft model would have put at each place (conf/mismatches.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from pydantic import PositiveInt

from bench.run.answer import context
from methods.decode import Limits, Request, generate
from methods.method import autoregressive
from methods.rules._files import Answer, Answers
from models.train.options import PairOptions
from results.store.errors import redacted_plain
from results.store.files import check_writable_file

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from tasks.base import Prompt


class Mismatches(PairOptions):
    """conf/mismatches.yaml, which explains every field."""

    prompts: PositiveInt
    max_new_tokens: PositiveInt | None


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


def collect(settings: Mismatches) -> Answers:
    """Greedy answers to the first turns, prompt by prompt; those already in `work` are reused.
    Raises ModelError, TaskError."""
    task, target, draft = (
        settings.load_task(),
        settings.load_model("target"),
        settings.load_model("draft"),
    )
    limit = settings.max_new_tokens or settings.task.options.max_new_tokens
    greedy = autoregressive(target)
    limits = Limits(limit, target.eos_ids, task.stop)

    def answer(prompt: Prompt) -> list[dict[str, list[int]]]:
        before = context(target, prompt, [])
        [generation] = generate(greedy, [Request(before, "answers")], limits)
        return [
            {
                "answer": generation.output_ids,
                "drafted": drafted(draft, before, generation.output_ids),
            }
        ]

    corpus = {
        "task": settings.task.model_dump(mode="json"),
        "version": task.version,
        "split": "train",
        "prompts": settings.prompts,
        "limit": limit,
        "dtype": settings.engine.dtype,
    }
    identity = {"target": target.fingerprint, "draft": draft.fingerprint, **corpus}
    rows = settings.map_prompts(
        identity, task.prompts_of("train", settings.prompts), answer, "answering"
    )
    return Answers(
        target=settings.provenance_name(target),
        fingerprint=target.fingerprint,
        draft=settings.provenance_name(draft),
        draft_fingerprint=draft.fingerprint,
        corpus=redacted_plain(corpus),
        answers=[Answer.model_validate(row) for _, [row] in rows],
    )


def run(config: Mapping[str, Any]) -> None:
    """Answer, write the file, say what is in it. Raises ValueError, ModelError, TaskError."""
    settings = Mismatches.from_config(config)
    check_writable_file(settings.out, "out")
    answers = collect(settings)
    settings.out.write_text(answers.model_dump_json() + "\n", encoding="utf-8")
    pairs = answers.mismatches()
    tokens, frequent = (
        sum(len(answer.answer) for answer in answers.answers),
        sum(n >= 5 for n in pairs.values()),
    )
    print(
        f"{settings.out}: {len(answers.answers)} answers, {tokens} tokens; the draft differs at "
        f"{pairs.total()}, in {len(pairs)} pairs, {frequent} of them at least 5 times"
    )
