"""One method answers a batch of prompts, turn by turn; each turn's context holds the method's own earlier answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import iadd
from typing import TYPE_CHECKING

from methods.counts import Counts
from methods.decode import Limits, Request, text_of
from methods.likelihood import overflow
from results.store.reasons import format_exception
from results.store.sample import another_prompt
from tasks.base import Prompt, Task, TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import LoadedMethod
    from methods.batch import Generation
    from methods.engine.protocols import Text


@dataclass(slots=True)
class Answer:
    """What one method emitted for one prompt: a generation and a text for each turn, and the token ids before it.

    `error` is the one-line reason why the prompt could not be answered; turns are then missing."""

    prompt: Prompt
    generations: list[Generation] = field(default_factory=list)
    contexts: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    error: str | None = None

    @property
    def output_ids(self) -> list[int]:
        """The emitted tokens, all turns."""
        return [token for generation in self.generations for token in generation.output_ids]

    @property
    def counts(self) -> Counts:
        """The counts of all turns."""
        return reduce(iadd, self.generations, Counts())

    @property
    def nll(self) -> float | None:
        """Nats of all emitted tokens; None where `decode` does not compute them."""
        nats = [generation.nll for generation in self.generations if generation.nll is not None]
        return sum(nats) if nats else None

    @property
    def prefill_s(self) -> float:
        """Seconds until the first tokens of all turns."""
        return sum(generation.prefill_s for generation in self.generations)

    @property
    def decode_s(self) -> float:
        """Seconds of all turns behind their first tokens."""
        return sum(generation.decode_s for generation in self.generations)


Decode = Callable[[Sequence[Request], Limits], list["Generation"]]
"""Decodes a batch, as `LoadedMethod.generate` does."""


def answer(method: LoadedMethod, prompts: Sequence[Prompt], limits: Limits, stream: Callable[[Prompt, int], str],
           turns: int | None = None, decode: Decode | None = None) -> list[Answer]:
    """Answer all prompts together, one batch a turn; at most `turns` turns. `decode` stands in for the method's own.

    `stream(prompt, turn)` names the prompt's random stream. A prompt that cannot be encoded fails alone; when the
    decoding itself raises, the prompts of that batch fail with its reason."""
    answers = [Answer(prompt) for prompt in prompts]
    longest, decode = max(map(_turns, prompts)), decode or method.generate
    for turn in range(longest if turns is None else min(turns, longest)):
        batch, requests = [], []
        for reply in answers:
            if reply.error is None and turn < _turns(reply.prompt):
                try:
                    ids = context(method.target, reply.prompt, reply.texts)
                    method.check_fit(len(ids), limits)  # too long a prompt fails here, not the batch it stands in
                    requests.append(Request(ids, stream(reply.prompt, turn)))
                    batch.append(reply)
                except Exception as error:  # whatever a tokenizer or template raises concerns this prompt alone
                    reply.error = format_exception(error)
        if not batch:
            continue
        try:
            generations = decode(requests, limits)
        except Exception as error:  # out of memory, a rule's own refusal: recorded, and the cell goes on
            for reply in batch:
                reply.error = format_exception(error)
            continue
        for reply, request, generation in zip(batch, requests, generations, strict=True):
            reply.error = overflow(generation, method.target.source) or None
            reply.contexts.append(request.input_ids)
            reply.generations.append(generation)
            is_message = bool(reply.prompt.turns)
            reply.texts.append(text_of(generation, limits.stop, method.target, opens=is_message))
    return answers


def context(target: Text, prompt: Prompt, answers: Sequence[str]) -> list[int]:
    """The token ids before the turn that follows the given answers; a given history stands in their place. The model's
    own answers are plain text, whatever they hold. Raises TaskError for a given id that is no token, and for a message
    with a control token, unless the prompt says what that is."""
    if prompt.input_ids is not None:
        if (largest := max(prompt.input_ids, default=0)) >= target.vocab_size:
            raise TaskError(f"input_ids: {target.source} has no token {largest}; give ids below {target.vocab_size}")
        return list(prompt.input_ids)
    if prompt.text is not None:
        return target.encode_text(prompt.text, plain=prompt.control_tokens == "text")
    if prompt.control_tokens == "refuse":
        _refuse_control_tokens(target, prompt)
    messages = [("system", prompt.system)] if prompt.system is not None else []
    messages += prompt.prefix
    first = len(messages)
    said = [*prompt.history, *answers[len(prompt.history):]][:len(answers)]
    for question, answer in zip(prompt.turns, said, strict=False):
        messages += [("user", question), ("assistant", answer)]
    messages.append(("user", prompt.turns[len(answers)]))
    own = range(first + 2 * len(prompt.history) + 1, len(messages), 2)
    plain = own if prompt.control_tokens == "parse" else range(len(messages))
    return target.encode([{"role": role, "content": content} for role, content in messages], plain, prompt.date)


def _refuse_control_tokens(target: Text, prompt: Prompt) -> None:
    """Raises TaskError for a given message, of whichever turn, that the tokenizer would read as more than one."""
    given = [*filter(None, [prompt.system]), *(text for _, text in prompt.prefix), *prompt.turns, *prompt.history]
    if token := next(filter(None, map(target.control_tokens.first, given)), None):
        raise TaskError(f"prompt {prompt.id} holds {token!r}, a control token of {target.source}: give "
                        "task.control_tokens=text to read it as plain text, or parse to read it as the token")


def prompt_sha256(target: Text, prompt: Prompt) -> str:
    """SHA-256 of what the task gives, as token ids of the target: the context of the first turn, then each later turn
    and the answers of a given history. The model's own answers are not in it. Raises as `context`."""
    later = [*prompt.history, *prompt.turns[1:]]
    plain = prompt.control_tokens == "text"
    given = [context(target, prompt, []), *(target.encode_text(text, plain) for text in later), len(prompt.history)]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


class PromptChanged(ValueError):
    """The task gives another prompt than the one that was answered. The message is one line."""


def check_prompts(target: Text, answered: Iterable[tuple[Prompt, str]]) -> None:
    """Check that prompts are those whose hashes were stored. Raises PromptChanged, naming the first that is not."""
    for prompt, before in answered:
        if (now := prompt_sha256(target, prompt)) != before:
            raise PromptChanged(f"{another_prompt(prompt.id, before, now)}; give the dataset as it was then, or "
                                "remove the folders of the cell and of its baseline to measure them anew")


def limits_of(cell: Cell, target: Text, task: Task) -> Limits:
    """Where the answers of a cell end."""
    return Limits(cell.max_new_tokens, target.eos_ids, task.stop)


def stream_name(cell: Cell, task: Task, prompt: Prompt, turn: int) -> str:
    """The random stream of one turn."""
    return f"{cell.seed}/{task.name}/{prompt.id}/{cell.repeat}/{turn}"


def _turns(prompt: Prompt) -> int:
    return len(prompt.turns) or 1
