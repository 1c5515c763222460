"""Self-distillation: conversations with the target's own answers, since a head must predict the target."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from bench.config.section import Section
from bench.run.answer import answer
from bench.run.models import LabMethod
from bench.training.options import map_batches
from methods.decode import Limits
from methods.method import autoregressive
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

    The answers are kept in `work`, so an interrupted run resumes. `identity` identifies the data. Raises ValueError
    where no answer ends within its limit."""
    def answered(conversations: Iterable[Conversation], part: str) -> list[Conversation]:
        key = {"target": target.fingerprint, "data": identity, "seed": seed, "part": part,
               "temperature": settings.temperature, "max_new_tokens": settings.max_new_tokens}
        prompts = [_prompt(number, conversation) for number, conversation in enumerate(conversations)]
        rows = map_batches(work, key, prompts, own_answers, "answering", settings.batch)
        if not any(row for _, row in rows):
            raise ValueError(f"own_answers: none of {len(rows)} answers ended within {settings.max_new_tokens} tokens; "
                             "raise own_answers.max_new_tokens, or set own_answers.prompts=0")
        return [[(role, content) for role, content in row] for _, row in rows if row]

    def own_answers(batch: Sequence[Prompt]) -> list[list[tuple[str, str]]]:
        """The conversations with the target's answers; empty for one that it did not finish."""
        found = answer(LabMethod(autoregressive(target, Sampling(settings.temperature))), batch,
                       Limits(settings.max_new_tokens, target.eos_ids),
                       lambda prompt, turn: f"{seed}/{prompt.id}/{turn}")
        turns = [(prompt, found[prompt.id]) for prompt in batch]
        return [[] if isinstance(said, FailedSample) or not {turn.finish for turn in said} <= ENDED
                else _conversation(prompt, [turn.text for turn in said]) for prompt, said in turns]

    own = answered(islice(source.train(-1, 0.0), settings.prompts), "train")
    held = answered(islice(source.held_out(-1, 0.0), settings.held_out), "held out")

    def train(step: int, exercises: float) -> Iterator[Conversation]:
        rng, given = random.Random(f"{seed}/{step}/own"), source.train(step, exercises)
        while True:
            yield rng.choice(own) if rng.random() < settings.share else next(given)

    def held_out(step: int, exercises: float) -> Iterator[Conversation]:
        rng = random.Random(f"{seed}/{step}/held out")
        while True:
            yield rng.choice(held)

    return ConversationSource(train, held_out)


def _prompt(number: int, conversation: Conversation) -> Prompt:
    turns = tuple(content for role, content in conversation if role == "user")
    system = next((content for role, content in conversation if role == "system"), None)
    return Prompt(id=str(number), turns=turns, system=system)


def _conversation(prompt: Prompt, texts: Sequence[str]) -> list[tuple[str, str]]:
    said = [("system", prompt.system)] if prompt.system is not None else []
    pairs = zip(prompt.turns, texts, strict=True)
    return said + [message for turn, text in pairs for message in (("user", turn), ("assistant", text))]
