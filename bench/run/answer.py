"""One method answers a batch of prompts, turn by turn; each turn's context holds the method's own
earlier answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from methods.decode import Limits, Request, text_of
from methods.likelihood import overflow
from results.store.errors import format_exception
from results.store.sample import FailedSample, another_prompt
from tasks.base import Prompt, Task, TaskError, TaskOptions

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.engine import LoadedMethod
    from methods.batch import Generation
    from methods.engine.language_model import LanguageModel


Answer = list["Generation"] | FailedSample
"""The turns of a prompt's answer, or why it could not be answered."""
Decode = Callable[[Sequence[Request], Limits], list["Generation"]]
"""Decodes a batch, as `LoadedMethod.generate` does."""


def answer(
    method: LoadedMethod,
    prompts: Sequence[Prompt],
    limits: Limits,
    stream: Callable[[Prompt, int], str],
    turns: int | None = None,
    decode: Decode | None = None,
) -> dict[str, Answer]:
    """Answer all prompts together, one batch a turn; at most `turns` turns. `decode` stands in for
    the method's own. Gives id -> answer, in the order of the prompts.

    `stream(prompt, turn)` names the prompt's random stream. A prompt that cannot be encoded fails
    alone; when the decoding itself raises, the prompts of that batch fail with its reason."""
    answers: dict[str, list[Generation]] = {prompt.id: [] for prompt in prompts}
    is_message = {prompt.id: bool(prompt.turns) for prompt in prompts}
    failed: dict[str, FailedSample] = {}
    decode = decode or method.generate
    for turn in range(max(map(_turns, prompts)))[:turns]:
        batch: dict[str, Request] = {}
        for prompt in prompts:
            if prompt.id in failed or turn >= _turns(prompt):
                continue
            try:
                ids = context(method.target, prompt, [turn.text for turn in answers[prompt.id]])
                # too long a prompt fails here, not the batch it stands in
                method.check_fit(len(ids), limits)
                batch[prompt.id] = Request(ids, stream(prompt, turn))
            # whatever a tokenizer or template raises concerns this prompt alone
            except Exception as error:
                failed[prompt.id] = FailedSample(prompt.id, format_exception(error))
        if not batch:
            continue
        try:
            generations = decode(list(batch.values()), limits)
        # out of memory, a rule's own refusal: recorded, and the cell goes on
        except Exception as error:
            failed |= {name: FailedSample(name, format_exception(error)) for name in batch}
            continue
        for name, generation in zip(batch, generations, strict=True):
            if reason := overflow(generation, method.target.source):
                failed[name] = FailedSample(name, reason)
            generation.text = text_of(
                generation,
                limits.stop,
                method.target,
                opens=is_message[name],
                think_end=limits.think_end,
            )
            answers[name].append(generation)
    return {prompt.id: failed.get(prompt.id, answers[prompt.id]) for prompt in prompts}


def context(target: LanguageModel, prompt: Prompt, answers: Sequence[str]) -> list[int]:
    """The token ids before the turn that follows the given answers; a given history stands in their
    place. The model's own answers are plain text, whatever they hold. Raises TaskError for a given
    id that is no token, and for a message with a control token, unless the prompt says what that
    is."""
    if prompt.input_ids is not None:
        if (largest := max(prompt.input_ids, default=0)) >= target.vocab_size:
            raise TaskError(
                f"input_ids: {target.source} has no token {largest}; give ids below "
                f"{target.vocab_size}"
            )
        return list(prompt.input_ids)
    if prompt.text is not None:
        return target.encode_text(prompt.text, plain=prompt.control_tokens == "text")
    if prompt.control_tokens == "refuse":
        _refuse_control_tokens(target, prompt)
    messages = [("system", prompt.system)] if prompt.system is not None else []
    messages += prompt.prefix
    first = len(messages)
    said = [*prompt.history, *answers[len(prompt.history) :]][: len(answers)]
    for question, answer in zip(prompt.turns, said, strict=False):
        messages += [("user", question), ("assistant", answer)]
    messages.append(("user", prompt.turns[len(answers)]))
    plain = range(len(messages))
    if prompt.control_tokens == "parse":  # the model's own answers alone
        plain = range(first + 2 * len(prompt.history) + 1, len(messages), 2)
    return target.encode(
        [{"role": role, "content": content} for role, content in messages], plain, prompt.date
    )


def _refuse_control_tokens(target: LanguageModel, prompt: Prompt) -> None:
    """Raises TaskError for a given message, of whichever turn, that the tokenizer would read as
    more than one."""
    prefix = [text for _, text in prompt.prefix]
    texts = [prompt.system or "", *prefix, *prompt.turns, *prompt.history]
    if token := next(filter(None, map(target.control_tokens.first, texts)), None):
        raise TaskError(
            f"prompt {prompt.id} holds {token!r}, a control token of {target.source}: give "
            "task.control_tokens=text to read it as plain text, or parse to read it as the token"
        )


def prompt_sha256(target: LanguageModel, prompt: Prompt) -> str:
    """SHA-256 of what the task gives, as token ids of the target: the context of the first turn,
    then each later turn and the answers of a given history. The model's own answers are not in it.
    Raises as `context`."""
    later = [*prompt.history, *prompt.turns[1:]]
    plain = prompt.control_tokens == "text"
    ids = [context(target, prompt, []), *(target.encode_text(text, plain) for text in later)]
    return hashlib.sha256(json.dumps([*ids, len(prompt.history)]).encode()).hexdigest()


class PromptChanged(ValueError):
    """The task gives another prompt than the one that was answered. The message is one line."""


def check_prompts(target: LanguageModel, answered: Iterable[tuple[Prompt, str]]) -> None:
    """Check that prompts are those whose hashes were stored. Raises PromptChanged, naming the first
    that is not."""
    for prompt, before in answered:
        if (now := prompt_sha256(target, prompt)) != before:
            raise PromptChanged(
                f"{another_prompt(prompt.id, before, now)}; give the dataset as it was then, or "
                "remove the folders of the cell and of its baseline to measure them anew"
            )


def limits_of(cell: Cell, target: LanguageModel, task: Task) -> Limits:
    """Where the answers of a cell end, and where behind a reasoning they begin."""
    think_end = think_end_of(cell.task.options, target)
    return Limits(cell.max_new_tokens, target.eos_ids, task.stop, think_end)


def think_end_of(options: TaskOptions, target: LanguageModel) -> tuple[str, ...]:
    """The marks behind which the target's answers begin: the option's, or its tokenizer's."""
    if options.think_end is None:
        return target.think_end
    return (options.think_end,) if options.think_end else ()


def stream_name(cell: Cell, task: Task, prompt: Prompt, turn: int) -> str:
    """The random stream of one turn."""
    return f"{cell.seed}/{task.name}/{prompt.id}/{cell.repeat}/{turn}"


def _turns(prompt: Prompt) -> int:
    return len(prompt.turns) or 1
