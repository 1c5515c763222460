"""The texts of the tokens of a cell's answers, by its target's tokenizer, without its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from bench.config.paths import TINY
from methods.engine.source import ModelError, Source
from methods.engine.texts import token_texts

if TYPE_CHECKING:
    from bench.config.cell import Cell
    from results.reports.answers import Texts


def texts_of(cell: Cell) -> Texts | None:
    """Splits answers of the cell's target into tokens; None where its tokenizer is not on this machine."""
    checkpoint = cell.pair.target
    try:
        return _tokenizer(checkpoint.source, checkpoint.revision)
    except ModelError:
        return None


@cache
def _tokenizer(source: str, revision: str | None) -> Callable[[Sequence[int]], list[str]]:
    return token_texts(source, revision, TINY / "target" if Source.of(source).is_random else None).of
