"""Whether the timed pass decodes what the quality pass did, and what it means where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from bench.run.answer import context
from methods.engine.margin import mass_between, top2_margin
from results.store.timed import FirstDifference

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from bench.run.answer import Answer
    from bench.run.engine import LoadedMethod
    from methods.engine.protocols import Text
    from results.store.sample import Sample
    from results.store.timed import Timed

NEAR_TIE = 1e-4
"""Logits of a model in float32 differ by less between batches of other sizes."""
MOST_DIFFERENT = 0.25
"""Largest share of timed prompts that may differ without a checkable rounding explanation: rounding also decides at a
threshold of a rule or in an acceptance test."""
LOSSLESS = ("lossless", "greedy")


class NotRepeatable(RuntimeError):
    """The two passes decoded what rounding cannot explain. The message is one line and names the prompt."""


def first_difference(method: LoadedMethod, cell: Cell, run: Answer, sample: Sample) -> FirstDifference | None:
    """Where the timed answer `run` leaves the sample of the quality pass; None where it does not.

    Raises NotRepeatable in float32 if rounding does not explain it and nothing else decides a token: under a lossless
    rule at temperature 0, and in plain sampling."""
    if run.output_ids == sample.output_ids:
        return None
    pairs = enumerate(zip_longest(run.output_ids, sample.output_ids))
    at, (own, other) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    logits, sampling = method.next_logits(before(method.target, run, sample, at)), cell.decoding.sampling
    drawn = not sampling.greedy and own is not None and other is not None
    between = mass_between(sampling.probs(logits), own, other) if drawn else None
    difference = FirstDifference(at, top2_margin(logits), between)
    if not cell.engine.repeats(cell):
        return difference
    if cell.engine.dtype == "float32" and _is_exact(cell) and not by_rounding(difference, sampling.temperature):
        reason = f"the two largest logits are {difference.margin:.2g} apart" if difference.between is None else (
            f"a probability of {difference.between:.2g} lies between the two tokens")
        explained = most_explained(difference, sampling.temperature)
        raise NotRepeatable(f"{sample.id}: the timed pass differs from the quality pass at token {at}, where {reason} "
                            f"(rounding explains {explained:g}): models or kernels have changed since; remove the "
                            f"folder {cell.name} from the store to measure it again")
    return difference


def by_rounding(difference: FirstDifference, temperature: float) -> bool:
    """Whether rounding explains the other token: a near-tie of logits where none is drawn, else a random number at a
    boundary between the two tokens."""
    return (difference.margin if difference.between is None else difference.between) < most_explained(difference,
                                                                                                       temperature)


def most_explained(difference: FirstDifference, temperature: float) -> float:
    """What rounding explains at most: of the margin, or of the probability between two tokens (`mass_between`)."""
    return NEAR_TIE if difference.between is None else NEAR_TIE / min(1.0, 2 * temperature)


def _is_exact(cell: Cell) -> bool:
    """Whether nothing but the target's logits and one random number decide each token of the cell: no threshold, no
    acceptance test, no filter whose edge rounding moves."""
    sampling = cell.decoding.sampling
    if sampling.greedy:
        return cell.rule.name in LOSSLESS
    return cell.is_autoregressive and sampling.top_k == 0 and sampling.top_p == 1.0 and sampling.min_p == 0.0


def before(target: Text, run: Answer, sample: Sample, at: int) -> list[int]:
    """The context of token `at` of the sample."""
    turn, start = 0, 0
    while turn + 1 < len(sample.turn_tokens) and at >= start + sample.turn_tokens[turn]:
        start += sample.turn_tokens[turn]
        turn += 1
    return [*context(target, run.prompt, sample.texts[:turn]), *sample.output_ids[start:at]]


def check_share(cell: Cell, rows: Sequence[Timed]) -> None:
    """Raise NotRepeatable where many prompts differ at tokens that neither a near-tie nor a random number at a boundary
    explains: rounding may still decide an acceptance test or a rule's threshold there, but seldom."""
    unexplained = [row for row in rows if row.own.parted is not None and not by_rounding(
        row.own.parted, cell.decoding.temperature)]
    most = max(1, MOST_DIFFERENT * len(rows))
    if cell.engine.repeats(cell) and cell.engine.dtype == "float32" and len(unexplained) > most:
        raise NotRepeatable(f"{unexplained[0].id}: the timed pass differs from the quality pass in {len(unexplained)} "
                            f"of {len(rows)} prompts, more than rounding explains: models or kernels have changed "
                            f"since; remove the folder {cell.name} from the store to measure it again")
