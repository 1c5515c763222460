"""Labels for AutoJudge without people: does a draft token in the target's place change the final answer?

From the left: the target's greedy answer, the draft's choice at each of its positions (all by one forward), and the
first position where they differ. There the draft's token is put in and the target finishes greedily. The same final
answer: the token is unimportant and the new text stays; another: it is important and the old one stays. Then on to the
right.
Source: garipovroma/autojudge, find_important_tokens.py."""

from __future__ import annotations

from typing import Any

import torch

from bench.config.errors import ConfigError
from bench.run.conversation import context
from methods.decode import Generation, Limits, Request, generate, text_of
from methods.engine.language_model import LanguageModel
from methods.method import Method
from tasks.base import Prompt, Score, Task


class Miner:
    """`method`: greedy autoregressive decoding of the target. `most`: mismatches of a prompt that are tried."""

    def __init__(self, method: Method, draft: LanguageModel, task: Task, limits: Limits, most: int):
        if not task.proportion:
            raise ConfigError(f"task={task.name}: its answers are not right or wrong, so no token can change them; "
                              "take a task whose answers are, such as mini_gsm")
        self.method, self.draft, self.task, self.limits, self.most = method, draft, task, limits, most

    def __call__(self, prompt: Prompt) -> list[dict[str, Any]]:
        """{"ids": context, text and draft token, "important": 0 or 1} for each mismatch, from left to right; none where
        the target's own answer cannot be read."""
        if len(prompt.turns) > 1:
            raise ConfigError(f"task={self.task.name}: {prompt.id} has {len(prompt.turns)} turns; take a task with one")
        before = context(self.method.target, prompt, [])
        text = self._finish(before, [])
        reference, found, at = self._score(prompt, text), [], 0
        if reference.answer is None:  # nothing that a token could change
            return []
        while len(found) < self.most:
            choices = drafted(self.draft, before, text)
            at = next((i for i in range(at, len(text)) if choices[i] != text[i]), None)
            if at is None:
                break
            start = [*text[:at], choices[at]]
            tried = self._finish(before, start)
            important = not same_answer(reference, self._score(prompt, tried))
            found.append({"ids": [*before, *start], "important": int(important)})
            text = text if important else tried
            at += 1
        return found

    def _finish(self, before: list[int], start: list[int]) -> list[int]:
        """`start` and what the target says after it, within the limits of an answer."""
        left = self.limits.max_new_tokens - len(start)
        if left < 1 or (start and start[-1] in self.limits.eos_ids):
            return start
        limits = Limits(left, self.limits.eos_ids, self.limits.stop)
        return start + generate(self.method, [Request(before + start, "mining")], limits)[0].output_ids

    def _score(self, prompt: Prompt, ids: list[int]) -> Score:
        return self.task.score(prompt, [text_of(Generation(output_ids=ids), self.limits.stop, self.method.target)])


def same_answer(one: Score, other: Score) -> bool:
    """The same extracted answer; where none was extracted from either, the same value."""
    return one.answer == other.answer and one.value == other.value


@torch.inference_mode()
def drafted(draft: LanguageModel, before: list[int], text: list[int]) -> list[int]:
    """The draft's most likely token at each position of `text`, the target's own tokens standing before it."""
    ids = [*before, *text]
    keep = torch.arange(len(before) - 1, len(ids) - 1, device=draft.device)
    out = draft.forward(torch.tensor([ids], device=draft.device), draft.new_cache(1, len(ids)), keep=keep)
    return out.logits[0].argmax(-1).tolist()
