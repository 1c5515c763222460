"""Where the reasoning of stored answers ends, for the metrics by span."""

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

OF_MODELS = re.compile(f"{THINK_END.pattern}|{re.escape(FINAL)}", re.IGNORECASE)
"""The marks that end a reasoning, where the task names none."""


def spans(cell: Cell, samples: Sequence[Sample]) -> dict[str, Sums]:
    """The metrics by span of a cell's samples; empty without marks, and where the target's
    tokenizer is not on this machine."""
    split, end = cell.texts, cell.task.options.think_end
    if split is None or end == "":
        return {}
    mark = OF_MODELS if end is None else re.compile(re.escape(end))
    thinking: dict[str, list[int | None]] = {}
    for sample in samples:
        start, ends = 0, []
        for tokens in sample.turn_tokens:
            ends.append(tokens_until(mark, split(sample.output_ids[start : start + tokens])))
            start += tokens
        thinking[sample.id] = ends
    return span_metrics(samples, thinking)


def tokens_until(mark: re.Pattern[str], texts: Sequence[str]) -> int | None:
    """The tokens, of these texts, up to the last place of the mark, its own included."""
    ends = [match.end() for match in mark.finditer("".join(texts))]
    if not ends:
        return None
    return sum(length < ends[-1] for length in accumulate(map(len, texts))) + 1
