"""What a target says of texts that some engine gave: a table of a few numbers a token, from which
`results.metrics.audit` tells whether the texts can be the target's own.

In each context the `TOP` most likely tokens are columns of their own; the others are gathered into
`BINS` columns by their probability. A column's features are fixed by its context alone, never by
the token that was emitted, so that every expectation under p is a sum over columns, and exact."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from methods.engine.language_model import LanguageModel
from methods.sampling import Sampling

TOP, BINS = 48, 6
"""Columns of single tokens, and of the others."""
BIN_WIDTH = 1.5
"""Nats between two bins; the last one holds all that is less likely."""
LEAST = -20.0
"""ln p and ln q as features, at least."""
EARLY = 4
"""The first so many tokens of an answer are early."""
SLACK = 0.25
"""Nats below the least likely token that top-k, top-p or greedy decoding keeps, up to which
rounding may explain another one."""
COLDNESS = tuple(2.0 ** (step / 4) for step in range(-5, 14))
"""1 / T from 0.42 to 9.5, of temperatures that may be nearer to the texts than the one asked
for."""
PIECE_BYTES = 1 << 27
"""Of the float64 logits that are held at once; several arrays of this size live beside."""
FEATURES = ("ln p", "argmax of p", "2nd of p", "early argmax of p", "end token")
OF_DRAFT = ("ln q", "argmax of q")
NAMES = (
    "text",
    "position",
    "surprisal",
    "entropy",
    "variance",
    "excess",
    "excluded",
    "log_mass",
    "features",
    "column",
    "heat",
)
SCALES = {"ln p": 5.0, "ln q": 5.0}
"""What features are divided by, where that is not 1."""


@dataclass(frozen=True, slots=True)
class Text:
    """One answer of the engine that is audited.

    prompt  names what was asked: answers to one prompt depend on one another.
    """

    prompt: str
    prompt_ids: Sequence[int]
    output_ids: Sequence[int]


Arrays = dict[str, NDArray[Any]]
"""Of n emitted tokens under the target's processed distribution p; C columns, F features:

    text, position  [n] int: which of the texts; the place in its answer, from 0.
    surprisal, entropy, variance  [n]: -ln p(x), its mean and its variance under p, nats; 0 for a
              token that p excludes.
    excess    [n]: the largest logit less that of x, before top-k and the like, nats at T = 1.
    excluded  [n] int: 0 inside the support of p, 1 outside as far as rounding may explain, 2
              further outside.
    log_mass  [n, C]: ln p of each column, -inf where it is empty.
    features  [n, C, F] float32.
    column    [n] int: the column of x; of no meaning where it is excluded.
    heat      [n, len(COLDNESS)]: logsumexp of (z - max z) / T over the support of p.
"""


@torch.inference_mode()
def scored(
    target: LanguageModel,
    texts: Sequence[Text],
    sampling: Sampling,
    draft: LanguageModel | None = None,
    without_end: bool = False,
) -> Arrays:
    """The tokens of all texts. `draft`: its distribution gives further features. `without_end`: the
    texts lack the end tokens that were drawn, so that each token is compared with p given that it
    ends nothing. Raises ModelError, TooLong."""
    ends = sorted(target.eos_ids)
    rows: list[list[Tensor]] = []
    for number, text in enumerate(texts):
        drafted = None if draft is None else logits_of(draft, text)
        place = 0
        for logits in logits_of(target, text):
            emitted = torch.tensor(text.output_ids[place : place + len(logits)])
            position = torch.arange(place, place + len(logits))
            q = None if drafted is None else next(drafted)
            values = row_of(logits.cpu(), emitted, position, sampling, ends, q, without_end)
            rows.append([torch.full_like(position, number), position, *values])
            place += len(logits)
    joined = [torch.cat(parts).numpy() for parts in zip(*rows, strict=True)]
    return dict(zip(NAMES, joined, strict=True))


def logits_of(model: LanguageModel, text: Text) -> Iterator[Tensor]:
    """The raw logits [m, V] behind which the answer's tokens were drawn, in pieces."""
    ids = [*text.prompt_ids, *text.output_ids[:-1]]
    first = len(text.prompt_ids) - 1
    width = max(1, PIECE_BYTES // (8 * model.vocab_size))
    cache = model.new_cache(1, len(ids) + 1)
    start = 0
    while start < len(ids):
        end = min(len(ids), max(start, first) + width)
        tokens = torch.tensor([ids[start:end]], device=model.device)
        keep = torch.arange(max(first - start, 0), end - start, device=model.device)
        yield model.forward(tokens, cache, keep=keep).logits[0]
        cache.set_lengths([end])
        start = end


def row_of(
    logits: Tensor,
    emitted: Tensor,
    position: Tensor,
    sampling: Sampling,
    ends: Collection[int],
    draft_logits: Tensor | None = None,
    without_end: bool = False,
) -> list[Tensor]:
    """The arrays of `NAMES` from the third on, of tokens `emitted` [m] at places `position` [m],
    before which the raw `logits` [m, V] and `draft_logits` [m, at most V] stood."""
    z = logits.double()
    at = emitted[:, None]
    processed = _processed(z, sampling)
    if without_end:
        z, processed = z.clone(), processed.clone()
        z[:, list(ends)] = -torch.inf
        processed[:, list(ends)] = -torch.inf
    log_p = processed.log_softmax(-1)
    p, inside = log_p.exp(), ~processed.isinf()
    finite = log_p.masked_fill(~inside, 0.0)
    entropy = -torch.linalg.vecdot(p, finite)
    variance = (torch.linalg.vecdot(p, finite.square()) - entropy.square()).clamp(min=0)
    excess = z.amax(-1) - z.gather(-1, at)[:, 0]
    warmth = 1.0 if sampling.greedy else sampling.temperature
    edge = z.masked_fill(~inside, torch.inf).amin(-1)
    below = (edge - z.gather(-1, at)[:, 0]) / warmth
    kept = inside.gather(-1, at)[:, 0]
    excluded = torch.where(kept, 0, torch.where(below <= SLACK, 1, 2))
    surprisal = torch.where(kept, -finite.gather(-1, at)[:, 0], 0.0)
    entropy, variance = torch.where(kept, entropy, 0.0), torch.where(kept, variance, 0.0)
    log_mass, features, column = _columns(log_p, emitted, position, ends, draft_logits, warmth)
    heat = _heat(z.masked_fill(~inside, -torch.inf))
    return [surprisal, entropy, variance, excess, excluded, log_mass, features, column, heat]


def _heat(z: Tensor) -> Tensor:
    """[m, len(COLDNESS)]: logsumexp of (z - max z) / T, to 1e-6."""
    below = (z - z.amax(-1, keepdim=True)).float()
    return torch.stack([(below * cold).exp().sum(-1) for cold in COLDNESS], -1).double().log()


def _processed(z: Tensor, sampling: Sampling) -> Tensor:
    """Processed logits [m, V] float64; of greedy decoding all but the likeliest are excluded."""
    if sampling.greedy:
        return torch.full_like(z, -torch.inf).scatter(-1, z.argmax(-1, keepdim=True), 0.0)
    # filtered in float32, as engines do it: its rounding decides ties
    excluded = sampling.process(z.float()).isinf()
    return (z / sampling.temperature).masked_fill(excluded, -torch.inf)


def _columns(
    log_p: Tensor,
    emitted: Tensor,
    position: Tensor,
    ends: Collection[int],
    draft_logits: Tensor | None,
    warmth: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """log_mass [m, C], features [m, C, F] and the column of each token [m]."""
    rows, vocab = log_p.shape
    top = min(TOP, vocab)
    best = log_p.topk(top, -1)
    gap = best.values[:, -1:] - log_p
    column = top + (gap / BIN_WIDTH).nan_to_num(posinf=0.0).long().clamp(0, BINS - 1)
    column.scatter_(-1, best.indices, torch.arange(top).expand(rows, -1))
    p = log_p.exp()
    mass = p.new_zeros(rows, top + BINS).scatter_add_(-1, column, p)
    is_end = torch.zeros(vocab, dtype=log_p.dtype)
    is_end[list(ends)] = 1.0
    of_token = [log_p.clamp(min=LEAST), is_end.expand(rows, -1)]
    if draft_logits is not None:
        log_q = log_p.new_full(log_p.shape, LEAST)
        log_q[:, : draft_logits.shape[-1]] = (draft_logits.cpu().double() / warmth).log_softmax(-1)
        is_best = torch.zeros_like(log_q).scatter_(-1, log_q.argmax(-1, keepdim=True), 1.0)
        of_token += [log_q.clamp(min=LEAST), is_best]

    def gathered(values: Tensor) -> Tensor:
        """The mean under p of a value of tokens [m, V], in each column."""
        sums = p.new_zeros(mass.shape).scatter_add_(-1, column, p * values)
        return torch.where(mass > 0, sums / mass.clamp(min=1e-300), 0.0)

    means = [gathered(values) for values in of_token]
    rank = torch.arange(top + BINS).expand(rows, -1)
    first, second = (rank == 0).double(), (rank == 1).double()
    early = first * (position < EARLY)[:, None]
    features = [means[0], first, second, early, means[1], *means[2:]]
    names = (*FEATURES, *OF_DRAFT)[: len(features)]
    scaled = [values / SCALES.get(name, 1.0) for name, values in zip(names, features, strict=True)]
    return mass.log(), torch.stack(scaled, -1).float(), column.gather(-1, emitted[:, None])[:, 0]
