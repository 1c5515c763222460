"""An LLM as a judge, over any OpenAI-compatible endpoint: its options and one request. The key comes from the
environment alone."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from bench.errors import ConfigError, one_line
from bench.sections import Section
from tasks.base import TaskError
from tasks.dataset import answers
from tasks.judging import JudgePrompts, is_remote


class JudgeError(RuntimeError):
    """The endpoint cannot be used. The message is one line."""


class Judge(Section):
    """The options of conf/judge/default.yaml."""

    base_url: str | None
    model: str | None
    key_env: str
    prompts: str | None
    references: str | None
    mode: Literal["single", "pairwise"] | None
    language_penalty: bool | None
    against: Literal["reference", "baseline"]
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
        if (path := self.references) is not None:
            if not Path(path).expanduser().is_file():
                raise ConfigError(f"judge.references={path}: no such file; give JSONL in FastChat's answer format")
            try:
                answers(path, "judge.references")
            except TaskError as error:  # its reader knows it by another key
                text = one_line(error).removeprefix(f"task.path={path}: ").removeprefix(f"{path}, ")
                raise ConfigError(f"judge.references={path}: {text}") from error

    def asked(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of a request."""
        said = [{"role": role, "content": content} for role, content in messages if content.strip()]
        return {"model": self.model, "messages": said, "temperature": self.temperature, "max_tokens": self.max_tokens}


def ask(judge: Judge, body: Mapping[str, Any]) -> str:
    """The judge's reply. Refused connections, time-outs and the server's faults are tried again. Raises JudgeError, and
    ConfigError for a key that cannot be sent; neither shows the key."""
    url = f"{judge.base_url.rstrip('/')}/chat/completions"
    key, reason = judge.key(), ""
    for attempt in range(judge.retries + 1):
        if attempt:
            time.sleep(judge.wait_s * 2 ** (attempt - 1))
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        if key:
            request.add_unredirected_header("Authorization", f"Bearer {key}")  # for this host, not where it points to
        try:
            with urllib.request.urlopen(request, timeout=judge.timeout_s) as answer:
                said = answer.read()
            try:
                return json.loads(said)["choices"][0]["message"]["content"] or ""
            except (ValueError, LookupError, TypeError):  # proxies report faults with status 200, or as a page
                reason = f"not a chat completion: {_shown(said.decode(errors='replace'), key)}"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {_shown(error.read().decode(errors='replace'), key)}"
            if error.code < 500 and error.code not in (408, 409, 429):
                break  # the request itself is refused: the same again would be too
        except (OSError, http.client.HTTPException) as error:  # no connection, a reply that breaks off
            reason = _shown(one_line(error), key)
    raise JudgeError(f"judge.base_url={judge.base_url}: no reply from {judge.model} ({reason}); what was judged is "
                     "kept, the same command goes on")


def _shown(said: str, key: str) -> str:
    """What a server said, in one short line, without the key that it may echo (as it is, or as JSON writes it)."""
    for form in {key, json.dumps(key)[1:-1]} - {""}:
        said = said.replace(form, "(hidden)")
    return one_line(said or "nothing")[:200]
