"""Answers of an OpenAI-compatible server, by `/completions`.

A prompt is sent as token ids, so that no template comes between; a server that refuses them gets
the text. All sampling settings are sent, since servers have defaults of their own. What it takes is
found out with the first prompt. Token ids of an answer are read where servers give them: vLLM
(`token_ids`, `token_id:N`), llama.cpp (`tokens`, `logprobs.content[].id`), and by the texts of its
tokens (OpenAI's `logprobs.tokens`); elsewhere its text is tokenised again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx

from bench.run.auditing.answers import Answer, AnswerFile, Asked
from bench.run.endpoint import Endpoint, NoReply
from results.store.errors import redacted

if TYPE_CHECKING:
    from methods.engine.language_model import LanguageModel
    from methods.sampling import Sampling

FATAL = (401, 403, 404)
"""HTTP statuses that no other form of the request changes."""
IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True, "logprobs": 1}
FEW = 8
"""Tokens that two answers share by chance alone only where the text is all but certain."""


class ServerError(RuntimeError):
    """The server cannot be audited. The message is one line."""


@dataclass
class Server:
    """A server that is asked.

    arguments  further fields of each request.
    notes      what a reader of the verdict should know of the server, a line each.
    """

    endpoint: Endpoint
    model: str
    target: LanguageModel
    sampling: Sampling
    max_new_tokens: int
    arguments: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    _way: tuple[bool, bool] | None = None

    @property
    def name(self) -> str:
        return f"url={redacted(self.endpoint.base_url)}"

    def answer(self, requests: Sequence[Asked], file: AnswerFile, concurrency: int) -> None:
        """Ask for what the file lacks. Raises ServerError where the server cannot be used or is
        gone; what has been answered stays in the file."""
        missing = file.missing(requests)
        if not missing:
            return
        try:
            first = self._first(missing[0])
            file.add(first)
            self._check_seed(missing[0], first)
            with ThreadPoolExecutor(concurrency) as pool:
                waiting = {pool.submit(self._ask, request): request for request in missing[1:]}
                try:
                    for done in as_completed(waiting):
                        self._take(done.result, waiting[done], file)
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        except NoReply as error:
            raise ServerError(
                f"{self.name}: no reply from {self.model} ({error}); {len(file.answers)} answers "
                "are kept, and the same command asks for the others"
            ) from error

    def _take(self, result: Callable[[], Answer], request: Asked, file: AnswerFile) -> None:
        try:
            file.add(result())
        except NoReply as error:
            if error.status is None or error.status >= 500:
                raise
            self.failed.append(f"{request.id}: {error}")

    def _first(self, request: Asked) -> Answer:
        """The first answer, by the first way of asking that the server takes. Raises NoReply."""
        ways = [(ids, more) for ids in (True, False) for more in (True, False)]
        for number, way in enumerate(ways):
            self._way = way
            try:
                answer = self._ask(request)
            except NoReply as error:
                if error.status in (None, *FATAL) or number == len(ways) - 1:
                    raise
                continue
            self._say(answer, *way)
            return answer
        raise AssertionError("the last way raises")

    def _say(self, answer: Answer, as_ids: bool, has_more: bool) -> None:
        if not as_ids:
            self.notes.append("it takes no token ids: prompts are sent as text")
        if not has_more:
            self.notes.append("it takes OpenAI's own fields alone: top_k, min_p were not sent")
        if answer.output_ids is None:
            self.notes.append("it gives no token ids: answers are tokenised again")

    def _check_seed(self, request: Asked, first: Answer) -> None:
        if self.sampling.greedy:
            return
        again = self._ask(request)
        if (again.output_ids, again.text) != (first.output_ids, first.text):
            self.notes.append("it ignores the seed: its answers cannot be asked for again")

    def _ask(self, request: Asked) -> Answer:
        """Raises NoReply, ServerError."""
        reply = self.endpoint.post(
            "/completions", self.body(request), "completion", lambda reply: Reply.of(joined(reply))
        )
        sent, seen = len(request.ids), reply.prompt_tokens
        if seen is not None and seen > sent:
            raise ServerError(
                f"{self.name}: it read {seen} tokens of a prompt of {sent}: it puts a template or "
                "tokens of its own around prompts; turn that off, or audit texts of it on file"
            )
        if seen is not None and seen < sent:
            raise NoReply(f"it cut the prompt to {seen} of {sent} tokens", 413)
        return Answer(
            id=request.id,
            sample=request.sample,
            prompt_ids=list(request.ids),
            output_ids=reply.ids(self.ids_by_text),
            text=reply.text,
            finish=reply.finish,
            tokens=reply.tokens,
        )

    def body(self, request: Asked) -> dict[str, Any]:
        """The request."""
        as_ids, has_more = self._way or (True, True)
        text = self.target.tokenizer.decode(list(request.ids), skip_special_tokens=False)
        more = {"top_k": self.sampling.top_k, "min_p": self.sampling.min_p, **IDS}
        return {
            "model": self.model,
            "prompt": list(request.ids) if as_ids else text,
            "max_tokens": self.max_new_tokens,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": request.seed,
            "stream": False,
            **(more if has_more else {}),
            **self.arguments,
        }

    @cached_property
    def ids_by_text(self) -> dict[str, int]:
        """The text of each token that has one of its own."""
        by_text: dict[str, int] = {}
        twice = set()
        for token in range(self.target.vocab_size):
            text = self.target.decode([token], special=True)
            twice |= {text} & by_text.keys()
            by_text[text] = token
        return {text: token for text, token in by_text.items() if text not in twice}


def repeated(answers: Sequence[Answer]) -> list[Answer]:
    """The answers without those that repeat an earlier one to the same prompt: a server that
    ignores its seed gives one answer many times, and these tell nothing new."""
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for answer in answers:
        said = (answer.id, answer.text, *(answer.output_ids or ()))
        if said not in seen or len(answer.output_ids or answer.text or "") < FEW:
            kept.append(answer)
        seen.add(said)
    return kept


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion.

    pieces  texts of its tokens, where the server gives them.
    """

    text: str
    finish: str | None
    token_ids: list[int] | None
    pieces: list[str] | None
    prompt_tokens: int | None
    tokens: int | None

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Reply:
        """Raises LookupError, TypeError, ValueError."""
        choice = plain["choices"][0]
        text = choice["text"]
        if not isinstance(text, str):
            raise TypeError("text must be text")
        usage = plain.get("usage") or {}
        logprobs = choice.get("logprobs") or {}
        ids = choice.get("token_ids") or choice.get("tokens")
        pieces = logprobs.get("tokens")
        if ids is None and pieces and all(piece.startswith("token_id:") for piece in pieces):
            ids = [int(piece.removeprefix("token_id:")) for piece in pieces]
        if ids is None and logprobs.get("content"):
            ids = [token.get("id") for token in logprobs["content"]]
        if ids is not None and not all(isinstance(token, int) for token in ids):
            ids = None
        return cls(
            text,
            choice.get("finish_reason"),
            ids,
            pieces,
            usage.get("prompt_tokens"),
            usage.get("completion_tokens"),
        )

    def ids(self, by_text: Mapping[str, int]) -> list[int] | None:
        """Token ids of the answer, None where the server tells nothing that gives them."""
        if self.token_ids is not None:
            return self.token_ids
        if self.pieces and "".join(self.pieces) == self.text:
            known = [by_text[piece] for piece in self.pieces if piece in by_text]
            return known if len(known) == len(self.pieces) else None
        return None


def joined(reply: httpx.Response) -> dict[str, Any]:
    """A completion, joined where the server streams it. Raises ValueError, LookupError."""
    if "event-stream" not in reply.headers.get("content-type", ""):
        plain: dict[str, Any] = reply.json()
        return plain
    whole: dict[str, Any] = {}
    for chunk in _chunks(reply.text):
        whole["usage"] = chunk.get("usage") or whole.get("usage")
        for choice in chunk.get("choices", ())[:1]:
            into = whole.setdefault("choices", [{"text": ""}])[0]
            into["text"] += choice.get("text") or ""
            into["finish_reason"] = choice.get("finish_reason") or into.get("finish_reason")
            for name in ("token_ids", "tokens"):
                if choice.get(name):
                    into[name] = [*into.get(name, ()), *choice[name]]
            for name, values in (choice.get("logprobs") or {}).items():
                if name in ("tokens", "content"):
                    logprobs = into.setdefault("logprobs", {})
                    logprobs[name] = [*logprobs.get(name, ()), *values]
    if not whole.get("choices"):
        raise ValueError("a stream without a choice")
    return whole


def _chunks(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)
