"""The options of the LLM judge."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from bench.config.errors import ConfigError
from bench.config.section import Section
from results.store.judge_summary import Opponent
from results.store.reasons import one_line
from tasks.base import ControlTokens, LocalFile, TaskError
from tasks.dataset import answers
from tasks.judge_prompts import JudgePrompts, as_text, is_remote


class Judge(Section):
    """The options of conf/judge/default.yaml."""

    base_url: str | None
    model: str | None
    key_env: str
    prompts: str | None
    references: LocalFile | None
    mode: Literal["single", "pairwise"] | None
    language_penalty: bool | None
    against: Opponent | None
    control_tokens: ControlTokens = "refuse"
    temperature: float = Field(ge=0)
    max_tokens: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    retries: int = Field(ge=0)
    wait_s: float = Field(ge=0)

    def check(self) -> None:
        """Raises ConfigError for what is missing or cannot be used, before anything is decoded."""
        if self.base_url is None:
            return
        if self.model is None:
            raise ConfigError("judge.model: missing; give the name by which judge.base_url knows its model")
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(f"judge.base_url={self.base_url}: must begin with http:// or https://")
        if self.language_penalty and self.mode == "pairwise":
            raise ConfigError("judge.language_penalty=true: is taken from grades, and judge.mode=pairwise gives none; "
                              "take judge.mode=single")
        self.key()
        self._check_files()

    def key(self) -> str:
        """The key, empty where there is none. Raises ConfigError, which does not show it."""
        key = os.environ.get(self.key_env, "").strip()  # a file read into a variable ends in a line break
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"judge.key_env={self.key_env}: the key in this environment variable has a character "
                              "that is not printable ASCII; set it again")
        return key

    def _check_files(self) -> None:
        """What lies on this machine; what has to be fetched is fetched when something is judged."""
        if self.prompts is not None and not is_remote(self.prompts):
            try:
                kind = JudgePrompts(self.prompts).kind
            except TaskError as error:
                raise ConfigError(one_line(error)) from error
            if kind == "alpaca_eval" and self.mode == "single":
                raise ConfigError(f"judge.prompts={self.prompts}: compares two answers; take judge.mode=pairwise")
        if self.references is not None:
            given = f"judge.references={self.references}: "
            if not self.references.is_file():
                raise ConfigError(f"{given}no such file; give JSONL in FastChat's answer format")
            try:
                answers(self.references, "judge.references")
            except TaskError as error:
                text = one_line(error).removeprefix(given).removeprefix(f"{self.references}, ")
                raise ConfigError(f"{given}{text}") from error

    def asked(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of a request."""
        said = [{"role": role, "content": as_text(content) if self.control_tokens == "text" else content}
                for role, content in messages if content.strip()]
        return {"model": self.model, "messages": said, "temperature": self.temperature, "max_tokens": self.max_tokens}
