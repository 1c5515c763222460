"""IFEval (Zhou et al. 2023, arXiv:2311.07911): instructions that a program can check, by lm-eval's own checkers.

The score is the prompt-level strict one; the answer says of each instruction whether it was followed (y or n), the
loose score and the shares of instructions followed are in the details.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from tasks.base import Score, TaskError
from tasks.scorers.base import Scorer


class IFEval(Scorer):
    metric: ClassVar[str] = "prompt_level_strict_acc"
    needs: ClassVar[tuple[str, ...]] = ("instruction_id_list", "kwargs", "prompt")

    name: Literal["ifeval"]

    def _score(self, reference: Mapping[str, Any], texts: Sequence[str]) -> Score:
        """Raises TaskError for the instructions that count sentences where nltk's sentence model is not installed."""
        import langdetect
        from lm_eval.tasks.ifeval.utils import process_results

        langdetect.DetectorFactory.seed = 0  # it draws samples of a text
        doc = {"key": 0, **{field: reference[field] for field in self.needs}}
        try:
            with _fixed_chance():
                found = process_results(doc, [texts[0]])
        except LookupError as error:
            raise TaskError("ifeval: this instruction counts sentences or words and needs nltk's model punkt_tab; run "
                            "`python -m nltk.downloader punkt_tab`") from error
        details = {name: _share(value) for name, value in found.items()}
        followed = "".join("yn"[not followed] for followed in found["inst_level_strict_acc"])
        return Score(details[self.metric], followed, details)


@contextmanager
def _fixed_chance() -> Iterator[None]:
    """lm-eval's checkers draw what a prompt leaves open (the letter of prompt 1122, which is none): the same each time,
    so that an answer scores the same each time."""
    before = random.getstate()
    random.seed(0)
    try:
        yield
    finally:
        random.setstate(before)


def _share(value: bool | Sequence[bool]) -> float:
    return float(value) if isinstance(value, bool) else sum(value) / len(value)
