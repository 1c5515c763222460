"""IFEval (Zhou et al. 2023, arXiv:2311.07911): verifiable instructions, checked by lm-eval's
checkers.

The score is one of lm-eval's four: whether all of a prompt's instructions are followed, or the
share of them that are; strict, or loose (also tried without the first line, the last, and
asterisks). The recorded answer has y or n per instruction, strict; the details hold all four.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from tasks.base import Reference, Score, TaskError
from tasks.scorers.base import Scorer

Level = Literal[
    "prompt_level_strict", "prompt_level_loose", "inst_level_strict", "inst_level_loose"
]


class IFEval(Scorer):
    needs: ClassVar[tuple[str, ...]] = ("instruction_id_list", "kwargs", "prompt")

    name: Literal["ifeval"]
    by: Level = "prompt_level_strict"

    @property
    def metric(self) -> str:
        return f"{self.by}_acc"

    @property
    def proportion(self) -> bool:
        return self.by.startswith("prompt")

    def unscorable(self) -> str | None:
        absent = [name for name in ("lm_eval", "langdetect") if find_spec(name) is None]
        return f"{', '.join(absent)}: not installed" if absent else None

    def _score(self, reference: Reference, texts: Sequence[str]) -> Score:
        """Raises TaskError if an instruction counts sentences and nltk's sentence model is not
        installed."""
        import langdetect

        process_results = _checkers()
        langdetect.DetectorFactory.seed = 0  # it samples from a text
        doc = {"key": 0, **{field: reference[field] for field in self.needs}}
        try:
            with _fixed_chance():
                results = process_results(doc, [texts[0]])
        except LookupError as error:
            raise TaskError(
                "ifeval: this instruction counts sentences or words and needs nltk's model "
                "punkt_tab; run `python -m nltk.downloader punkt_tab`"
            ) from error
        details = {name: _share(value) for name, value in results.items()}
        followed = "".join("yn"[not followed] for followed in results["inst_level_strict_acc"])
        return Score(details[self.metric], followed, details)


@cache
def _checkers() -> Callable[..., dict[str, Any]]:
    """lm-eval's `process_results`, imported as in a process that is not its group's first: the
    first fetches nltk's model without being asked, and prints that it did even where it could
    not."""
    rank = os.environ.get("LOCAL_RANK")
    os.environ["LOCAL_RANK"] = "1"
    try:
        from lm_eval.tasks.ifeval.utils import process_results
    finally:
        del os.environ["LOCAL_RANK"]
        os.environ.update({"LOCAL_RANK": rank} if rank is not None else {})
    return process_results


@contextmanager
def _fixed_chance() -> Iterator[None]:
    """Seed `random` for lm-eval's checkers, which draw what a prompt leaves open (the letter of
    prompt 1122, which is not a letter), so that scores are reproducible."""
    before = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(before)


def _share(value: bool | Sequence[bool]) -> float:
    return float(value) if isinstance(value, bool) else sum(value) / len(value)
