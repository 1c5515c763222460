"""One method answers a batch of prompts, turn by turn; each turn's context holds the method's own earlier answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from methods.decode import Limits, Request, check_fit, generate, text_of
from results.store.reasons import format_exception
from tasks.base import Prompt, Task, TaskError

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from methods.batch import Generation
    from methods.engine.language_model import LanguageModel
    from methods.method import Method


@dataclass(slots=True)
class Answer:
    """What one method emitted for one prompt, all its turns: lists per turn, or per cycle over all turns.

    `nll` is that of all emitted tokens under the target, where `decode` computes it.
    `error` is the one-line reason why the prompt could not be answered; the other fields are then incomplete."""

    prompt: Prompt
    output_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    turn_tokens: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    relaxed: int = 0
    greedier: int = 0
    drafted: int = 0
    pruned: int = 0
    flags: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    nll: float | None = None
    error: str | None = None

    def add(self, generation: Generation, text: str, prompt_tokens: int) -> None:
        self.output_ids += generation.output_ids
        self.texts.append(text)
        self.turn_tokens.append(len(generation.output_ids))
        self.committed += generation.committed
        self.accepted += generation.accepted
        self.finish.append(generation.finish)
        self.relaxed += generation.relaxed
        self.greedier += generation.greedier
        self.drafted += generation.drafted
        self.pruned += generation.pruned
        for name, count in generation.flags.items():
            self.flags[name] = self.flags.get(name, 0) + count
        if generation.nll is not None:
            self.nll = generation.nll + (self.nll or 0.0)
        self.prompt_tokens += prompt_tokens
        self.prefill_s += generation.prefill_s
        self.decode_s += generation.decode_s


def answer(method: Method, prompts: Sequence[Prompt], limits: Limits, stream: Callable[[Prompt, int], str],
           turns: int | None = None, decode: Callable[..., list[Generation]] = generate) -> list[Answer]:
    """Answer all prompts together, one batch a turn; at most `turns` turns. `decode` stands in for `generate`.

    `stream(prompt, turn)` names the prompt's random stream. A prompt that cannot be encoded fails alone; when the
    decoding itself raises, the prompts of that batch fail with its reason."""
    answers = [Answer(prompt) for prompt in prompts]
    longest = max(map(_turns, prompts))
    for turn in range(longest if turns is None else min(turns, longest)):
        batch, requests = [], []
        for one in answers:
            if one.error is None and turn < _turns(one.prompt):
                try:
                    ids = context(method.target, one.prompt, one.texts)
                    check_fit(method, len(ids), limits)  # too long a prompt fails here, not the batch it stands in
                    requests.append(Request(ids, stream(one.prompt, turn)))
                    batch.append(one)
                except Exception as error:  # whatever a tokenizer or template raises concerns this prompt alone
                    one.error = format_exception(error)
        if not batch:
            continue
        try:
            generations = decode(method, requests, limits)
        except Exception as error:  # out of memory, a rule's own refusal: recorded, and the cell goes on
            for one in batch:
                one.error = format_exception(error)
            continue
        for one, request, generation in zip(batch, requests, generations, strict=True):
            one.add(generation, text_of(generation, limits.stop, method.target), len(request.input_ids))
    return answers


def context(target: LanguageModel, prompt: Prompt, answers: Sequence[str]) -> list[int]:
    """The token ids before the turn that follows the given answers; a given history stands in their place. Raises
    TaskError for a given id that is no token."""
    if prompt.input_ids is not None:
        if (largest := max(prompt.input_ids, default=0)) >= target.vocab_size:
            raise TaskError(f"input_ids: {target.source} has no token {largest}; give ids below {target.vocab_size}")
        return list(prompt.input_ids)
    if prompt.text is not None:
        return target.encode_text(prompt.text)
    messages = [("system", prompt.system)] if prompt.system is not None else []
    messages += prompt.prefix
    said = [*prompt.history, *answers[len(prompt.history):]][:len(answers)]
    for question, answer in zip(prompt.turns, said, strict=False):
        messages += [("user", question), ("assistant", answer)]
    messages.append(("user", prompt.turns[len(answers)]))
    return target.encode([{"role": role, "content": content} for role, content in messages])


def limits_of(cell: Cell, method: Method, task: Task) -> Limits:
    """Where the answers of a cell end."""
    return Limits(cell.max_new_tokens, method.target.eos_ids, task.stop)


def stream_name(cell: Cell, task: Task, prompt: Prompt, turn: int) -> str:
    """The random stream of one turn."""
    return f"{cell.seed}/{task.name}/{prompt.id}/{cell.repeat}/{turn}"


def _turns(prompt: Prompt) -> int:
    return len(prompt.turns) or 1
