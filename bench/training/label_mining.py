"""Mine labels for AutoJudge: does replacing the target's token by the draft's change the final answer?

The target answers greedily; one forward gives the draft's choice at each position of the answer. At the first position
where they differ, the draft's token replaces the target's and the target finishes greedily. If the final answer is
unchanged, the token is unimportant and the new text is kept; otherwise it is important and the old text is kept. The
search continues to the right.
Source: garipovroma/autojudge, find_important_tokens.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bench.run.answer import context
from methods.batch import Generation
from methods.decode import Limits, Request, generate, text_of

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.method import Method
    from tasks.base import Prompt, Score, Task


class Miner:
    """Labels the mismatches of one prompt at a time.

    method  greedy autoregressive decoding of the target.
    draft   the draft model.
    task    extracts and scores final answers.
    limits  of an answer.
    most    mismatches of one prompt that are tried at most.
    """

    def __init__(self, method: Method, draft: LanguageModel, task: Task, limits: Limits, most: int) -> None:
        if not task.proportion:
            raise ValueError(f"task={task.name}: its answers are not right or wrong (its score is not 0 or 1), so no "
                             "token can change them; give a task whose answers are, such as mini_gsm")
        self.method, self.draft, self.task, self.limits, self.most = method, draft, task, limits, most

    def __call__(self, prompt: Prompt) -> list[dict[str, Any]]:
        """{"ids": context, text and draft token, "important": 0 or 1} for each mismatch, left to right; none where no
        answer can be extracted from the target's own text. Raises ValueError for a prompt of several turns."""
        if len(prompt.turns) > 1:
            raise ValueError(f"task={self.task.name}: {prompt.id} has {len(prompt.turns)} turns; take a task with one")
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
        limits = Limits(left, self.limits.eos_ids, self.limits.stop)
        return start + generate(self.method, [Request(before + start, "mining")], limits)[0].output_ids

    def _score(self, prompt: Prompt, ids: list[int]) -> Score:
        return self.task.score(prompt, [text_of(Generation(output_ids=ids), self.limits.stop, self.method.target)])


def same_answer(one: Score, other: Score) -> bool:
    """Whether both have the same extracted answer (possibly none) and the same value."""
    return one.answer == other.answer and one.value == other.value


@torch.inference_mode()
def drafted(draft: LanguageModel, before: list[int], text: list[int]) -> list[int]:
    """The draft's most likely token at each position of `text`, given the target's tokens before it."""
    ids = [*before, *text]
    keep = torch.arange(len(before) - 1, len(ids) - 1, device=draft.device)
    out = draft.forward(torch.tensor([ids], device=draft.device), draft.new_cache(1, len(ids)), keep=keep)
    return out.logits[0].argmax(-1).tolist()


def recorded(method: Method, draft: LanguageModel, prompt: Prompt, limits: Limits) -> dict[str, list[int]]:
    """The target's greedy answer to a prompt's first turn, and what the draft would have put at each place of it."""
    before = context(method.target, prompt, [])
    [generation] = generate(method, [Request(before, "answers")], limits)
    return {"answer": generation.output_ids, "drafted": drafted(draft, before, generation.output_ids)}
