"""Whether the timed pass decodes what the quality pass did, and what it means where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from bench.run.conversation import context
from methods.engine.margin import top2_margin
from results.store.timed import Parting

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.conversation import Answer
    from methods.engine.language_model import LanguageModel
    from results.store.sample import Sample
    from results.store.timed import Timed

NEAR_TIE = 1e-4
"""Logits of a model in float32 differ by less between batches of other sizes."""
MOST_PARTED = 0.25
"""Share of the timed prompts that may part where a margin of logits does not decide; rounding alone stays far below."""
STRICT = ("lossless", "greedy")


class NotRepeatable(RuntimeError):
    """The two passes decoded what rounding cannot explain. The message is one line and names the prompt."""


def parting(target: LanguageModel, cell: Cell, run: Answer, sample: Sample) -> Parting | None:
    """Where the timed answer `run` leaves the sample of the quality pass; None where it does not.

    Raises NotRepeatable if a strict rule at temperature 0 in float32 leaves it where the target's two largest logits
    are not nearly tied: nothing else decides a token there."""
    if run.output_ids == sample.output_ids:
        return None
    pairs = zip_longest(run.output_ids, sample.output_ids)
    at = next(place for place, (own, other) in enumerate(pairs) if own != other)
    margin = top2_margin(target, before(target, run, sample, at))
    if cell.engine.dtype == "float32" and cell.decoding.sampling.greedy and cell.rule.name in STRICT \
            and margin >= NEAR_TIE:
        raise NotRepeatable(f"{sample.id}: the timed pass differs from the quality pass at token {at}, where the two "
                            f"largest logits are {margin:.2g} apart (a near-tie is below {NEAR_TIE:g}): models or "
                            "kernels have changed since; remove the cell's folder to measure it again")
    return Parting(at, margin)


def before(target: LanguageModel, run: Answer, sample: Sample, at: int) -> list[int]:
    """The context of token `at` of the sample."""
    turn, start = 0, 0
    while turn + 1 < len(sample.turn_tokens) and at >= start + sample.turn_tokens[turn]:
        start += sample.turn_tokens[turn]
        turn += 1
    return [*context(target, run.prompt, sample.texts[:turn]), *sample.output_ids[start:at]]


def check_share(cell: Cell, rows: Sequence[Timed]) -> None:
    """Raise NotRepeatable where more prompts part than rounding explains: above temperature 0 a random number, and in a
    relaxed rule a threshold, may fall between two roundings of the same number, whatever the margin of the logits."""
    parted = [row for row in rows if row.own.parted is not None and row.own.parted.margin >= NEAR_TIE]
    if cell.engine.dtype == "float32" and len(parted) > max(1, MOST_PARTED * len(rows)):
        raise NotRepeatable(f"{parted[0].id}: the timed pass differs from the quality pass in {len(parted)} of "
                            f"{len(rows)} prompts, more than rounding explains: models or kernels have changed since; "
                            "remove the cell's folder to measure it again")
