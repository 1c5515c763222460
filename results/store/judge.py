"""What an LLM judge said of a cell: its replies, one line each, kept for good and looked up by the question; and the
scores that they give."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from results.store.errors import StoreError
from results.store.files import append_line
from results.store.records import from_json, line_of, object_of

Opponent = Literal["reference", "baseline"]
"""What an LLM judge compares an answer with: the answer in the data, or that of autoregressive decoding."""


class JudgeSummary(BaseModel):
    """Scores of an LLM judge for one cell: mode "single" grades each answer, "pairwise" compares it with another one.

    score        single: mean grade over all turns, 1 to 10; `turn_1`, `turn_2`, … are those of each turn
    win_rate     pairwise: share of prompts won, a tie counting half
    win_first    pairwise: the same where the judged answer stands first, and
    win_second   where it stands second
    ci95         95% interval over prompts of the score or of the win rate
    n            prompts that count
    left_out     pairwise: prompts without a verdict in both orders
    penalised    single: grades replaced by their square root, the answer being in a wrong language
    unpenalised  single: the score without that
    replies      replies of the judge
    unread       replies without a verdict
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, float]
    model: str
    mode: str
    score: float | None = None
    win_rate: float | None = None
    win_first: float | None = None
    win_second: float | None = None
    ci95: tuple[float, float] | None = None
    n: int
    left_out: int = 0
    penalised: int = 0
    unpenalised: float | None = None
    replies: int
    unread: int

    @property
    def turns(self) -> dict[str, float]:
        """The scores of the turns, by their name, in order."""
        return dict(self.__pydantic_extra__ or {})

    def metrics(self) -> dict[str, float | tuple[float, float] | None]:
        """The score, or the win rate, under its name in a `Summary`, with its interval."""
        if self.mode == "pairwise":
            return {"win_rate": self.win_rate, "win_rate_ci95": self.ci95}
        return {"judge_score": self.score, "judge_score_ci95": self.ci95}

    @property
    def told(self) -> str:
        """Who judged what, in a few words."""
        parts = [f"judged by {self.model}: {self.n} prompt{'' if self.n == 1 else 's'}"]
        if self.win_first is not None and self.win_second is not None:
            parts.append(f"{self.win_first:.1%} won where its answer stood first, {self.win_second:.1%} where second")
        if self.left_out:
            parts.append(f"{self.left_out} left out, without a verdict in both orders")
        if self.unread:
            parts.append(f"{self.unread} of {self.replies} replies without a verdict")
        return ", ".join(parts)


def question_key(asked: Mapping[str, Any]) -> str:
    """16 hex digits of everything that was asked: model, settings and messages, the judged answer among them."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


class JudgeReplies:
    """`verdicts.jsonl` in a cell's folder; append to it only while the cell is locked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "verdicts.jsonl"

    def read(self) -> dict[str, str]:
        """Question key -> reply. An unfinished last line is left out. Raises StoreError for any other bad line."""
        replies: dict[str, str] = {}
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                break
            try:
                line = from_json(object_of(self.path.parent.name, raw))
                if not isinstance(line["reply"], str):
                    raise TypeError("a reply is text")
                replies[line["key"]] = line["reply"]
            except (ValueError, KeyError, TypeError) as error:
                where = f"{self.path} line {number}"
                raise StoreError(f"{where} is not a verdict: remove the line to judge again") from error
        return replies

    def append(self, key: str, reply: str, about: Mapping[str, Any]) -> None:
        """Add one reply, with what it is about; it is on disk when this returns."""
        append_line(self.path, line_of(self.path.parent.name, {"key": key, **about, "reply": reply}).encode())
