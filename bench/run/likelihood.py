"""The likelihood of measured answers under the target itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.run.conversation import Answer, context
from methods.engine.likelihood import emitted_nll

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel


def add_nll(target: LanguageModel, runs: Sequence[Answer]) -> None:
    """Set each answer's `nll`, in nats over all its turns: one teacher-forced pass a turn, outside every clock."""
    for turn in range(max((len(run.turn_tokens) for run in runs), default=0)):
        there = [run for run in runs if run.error is None and turn < len(run.turn_tokens)]
        if not there:
            continue
        before = [context(target, run.prompt, run.texts[:turn]) for run in there]
        starts = [sum(run.turn_tokens[:turn]) for run in there]
        emitted = [run.output_ids[at:at + run.turn_tokens[turn]] for run, at in zip(there, starts, strict=True)]
        for run, nats in zip(there, emitted_nll(target, before, emitted), strict=True):
            run.nll = nats + (run.nll or 0.0)
