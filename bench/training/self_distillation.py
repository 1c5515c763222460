"""Self-distillation: conversations with the target's own answers, since a head must predict the target."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from bench.config.section import Section
from bench.run.answer import Answer, answer
from bench.run.models import LabMethod
from methods.decode import Limits
from methods.method import Method, autoregressive
from methods.sampling import Sampling
from methods.training.heads.loop import ConversationSource
from results.store.sample import FailedSample
from tasks.base import Prompt

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.training.packing import Conversation

ENDED = {"eos"}
"""How an answer must end: a truncated one would teach a wrong end."""


class OwnAnswers(Section):
    """How the target answers training prompts.

    prompts         training prompts it answers (0: none).
    held_out        prompts for the measurement.
    share           share of its own answers among all conversations.
    temperature     of its answers (0: greedy).
    max_new_tokens  of an answer.
    batch           prompts answered together.
    """

    prompts: NonNegativeInt
    held_out: PositiveInt
    share: float = Field(gt=0, le=1)
    temperature: NonNegativeFloat
    max_new_tokens: PositiveInt
    batch: PositiveInt


def with_own_answers(source: ConversationSource, target: LanguageModel, settings: OwnAnswers, work: Path, identity: str,
                     seed: int) -> ConversationSource:
    """`source` with a share of conversations answered by the target itself; all held-out ones are.

    The answers are kept in `work`, one conversation a line, so an interrupted run resumes. `identity` identifies the
    data. Raises ValueError where no answer ends within its limit."""
    key = [target.fingerprint, identity, seed, settings.temperature, settings.max_new_tokens]
    name = "answers-" + hashlib.blake2b(json.dumps(key).encode(), digest_size=4).hexdigest()
    answered = partial(_answered, target=target, settings=settings, seed=seed)
    own = answered(islice(source.train(-1, 0.0), settings.prompts), work / f"{name}.jsonl")
    held = answered(islice(source.held_out(-1, 0.0), settings.held_out), work / f"{name}-held-out.jsonl")

    def train(step: int, exercises: float) -> Iterator[Conversation]:
        rng, given = random.Random(f"{seed}/{step}/own"), source.train(step, exercises)
        while True:
            yield rng.choice(own) if rng.random() < settings.share else next(given)

    def held_out(step: int, exercises: float) -> Iterator[Conversation]:
        rng = random.Random(f"{seed}/{step}/held out")
        while True:
            yield rng.choice(held)

    return ConversationSource(train, held_out)


def answers(method: Method, prompts: Sequence[Prompt], limits: Limits, stream: Callable[[Prompt, int], str],
            turns: int | None = None) -> dict[str, Answer]:
    """The answers of the lab's loop, decoded as one batch; `stream(prompt, turn)` names the random stream."""
    return answer(LabMethod(method), prompts, limits, stream, turns)


def answered_by(target: LanguageModel, prompts: Sequence[Prompt], temperature: float, max_new_tokens: int,
                key: str) -> dict[str, Answer]:
    """The target's own answers, decoded as one batch; `key` and a prompt's id name its random stream."""
    return answers(autoregressive(target, Sampling(temperature)), prompts, Limits(max_new_tokens, target.eos_ids),
                   lambda prompt, turn: f"{key}/{prompt.id}/{turn}")


def _answered(conversations: Iterable[Conversation], file: Path, *, target: LanguageModel, settings: OwnAnswers,
              seed: int) -> list[Conversation]:
    """The conversations with the target's answers, without those it did not finish."""
    prompts = [_prompt(number, conversation) for number, conversation in enumerate(conversations)]
    n = len(prompts)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        for start in range(len(lines), n, settings.batch):
            batch = answered_by(target, prompts[start:start + settings.batch], settings.temperature,
                                settings.max_new_tokens, str(seed))
            for prompt in prompts[start:start + settings.batch]:
                turns = batch[prompt.id]
                said: list[dict[str, str]] = []
                if not isinstance(turns, FailedSample) and {turn.finish for turn in turns} <= ENDED:
                    said = messages(prompt, [turn.text for turn in turns])
                lines.append(json.dumps({"messages": said}))
            out.write("".join(f"{line}\n" for line in lines[start:]))
            out.flush()
            end = "" if len(lines) < n else "\n"
            print(f"\r{file.name}: {len(lines)} of {n} prompts answered", end=end, flush=True)
    rows = [json.loads(line)["messages"] for line in lines[:n]]
    answered: list[Conversation] = [[(m["role"], m["content"]) for m in messages] for messages in rows if messages]
    if not answered:
        raise ValueError(f"{file}: none of {n} answers ended within {settings.max_new_tokens} tokens; raise "
                          "own_answers.max_new_tokens, or set own_answers.prompts=0")
    return answered


def _prompt(number: int, conversation: Conversation) -> Prompt:
    turns = tuple(content for role, content in conversation if role == "user")
    system = next((content for role, content in conversation if role == "system"), None)
    return Prompt(id=str(number), turns=turns, system=system)


def messages(prompt: Prompt, texts: list[str]) -> list[dict[str, str]]:
    """A conversation as chat messages."""
    rows = [{"role": "system", "content": prompt.system}] if prompt.system is not None else []
    for turn, text in zip(prompt.turns, texts, strict=True):
        rows += [{"role": "user", "content": turn}, {"role": "assistant", "content": text}]
    return rows
