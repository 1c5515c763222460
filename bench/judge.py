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
from typing import Any, Literal

from pydantic import Field

from bench.errors import ConfigError, one_line
from bench.sections import Section


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
    against: Literal["reference", "baseline"]
    temperature: float = Field(ge=0)
    max_tokens: int = Field(ge=1)
    timeout_s: float = Field(gt=0)
    retries: int = Field(ge=0)
    wait_s: float = Field(ge=0)

    def check(self) -> None:
        """Raises ConfigError for what is missing, before anything is asked."""
        if self.base_url is not None and self.model is None:
            raise ConfigError("judge.model: missing; give the name by which judge.base_url knows its model")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ConfigError(f"judge.base_url={self.base_url}: must begin with http:// or https://")

    def asked(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The body of a request."""
        said = [{"role": role, "content": content} for role, content in messages if content.strip()]
        return {"model": self.model, "messages": said, "temperature": self.temperature, "max_tokens": self.max_tokens}


def ask(judge: Judge, body: Mapping[str, Any]) -> str:
    """The judge's reply. Refused connections, time-outs and the server's faults are tried again. Raises JudgeError."""
    url = f"{judge.base_url.rstrip('/')}/chat/completions"
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(judge.key_env, ""):
        headers["Authorization"] = f"Bearer {key}"
    reason = ""
    for attempt in range(judge.retries + 1):
        if attempt:
            time.sleep(judge.wait_s * 2 ** (attempt - 1))
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=judge.timeout_s) as answer:
                said = answer.read()
            try:
                return json.loads(said)["choices"][0]["message"]["content"] or ""
            except (ValueError, LookupError, TypeError):  # proxies report faults with status 200, or as a page
                reason = f"not a chat completion: {one_line(said.decode(errors='replace'))[:200]}"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {one_line(error.read().decode(errors='replace'))[:200]}"
            if error.code < 500 and error.code not in (408, 409, 429):
                break  # the request itself is refused: the same again would be too
        except (OSError, http.client.HTTPException) as error:  # no connection, a reply that breaks off
            reason = one_line(error)
    raise JudgeError(f"judge.base_url={judge.base_url}: no reply from {judge.model} ({reason}); what was judged is "
                     "kept, the same command goes on")
