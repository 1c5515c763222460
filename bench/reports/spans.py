"""Where the reasoning of stored answers ends, for the metrics by span (`results.metrics.spans`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from methods.engine.texts import FINAL, THINK_END
from results.metrics.spans import span_metrics

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.metrics.metric import Sums
    from results.store.sample import Sample

MARKS_OF_MODELS = re.compile(f"{THINK_END.pattern}|{re.escape(FINAL)}", re.IGNORECASE)
"""What ends the reasoning of the models that are known, where task.think_end is not given."""


def spans(cell: Cell, samples: Sequence[Sample]) -> dict[str, Sums]:
    """The metrics by span of a cell's samples. Empty where no answer has a mark, where
    `task.think_end=""` says that there is none, and where the target's tokenizer is not on this
    machine."""
    texts_of, think_end = cell.texts, cell.task.options.think_end
    if texts_of is None or think_end == "":
        return {}
    mark = MARKS_OF_MODELS if think_end is None else re.compile(re.escape(think_end))
    thinking: dict[str, list[int | None]] = {}  # prompt -> of each turn, as `tokens_until`
    for sample in samples:
        thinking[sample.id] = []
        start = 0
        for tokens in sample.turn_tokens:
            turn = sample.output_ids[start : start + tokens]
            thinking[sample.id].append(tokens_until(mark, texts_of(turn)))
            start += tokens
    return span_metrics(samples, thinking)


def tokens_until(mark: re.Pattern[str], texts: Sequence[str]) -> int | None:
    """How many tokens, of which `texts` are the texts, go up to the last place of the mark, the
    mark's own included; None where the mark is not among them."""
    ends = [match.end() for match in mark.finditer("".join(texts))]  # in characters
    if not ends:
        return None
    behind_token = accumulate(map(len, texts))  # characters up to the end of each token
    before_end = sum(characters < ends[-1] for characters in behind_token)
    return before_end + 1  # and the token in which the mark ends
