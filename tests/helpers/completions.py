"""An OpenAI-compatible server in a thread of the test, which draws its answers from a model; and
the ways in which servers go wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.helpers.replies import Replying, Serving


@dataclass
class Manners:
    """How the server behaves.

    ids          gives token ids of answers: "token_ids", "token_id:", "content", or none.
    takes_ids    takes prompts as token ids.
    takes_more   takes fields beside OpenAI's own.
    template     tokens that it puts before every prompt.
    cut_prompt   reads the last so many tokens of a prompt alone.
    seed         heeds the seed.
    temperature  draws at this one, whatever is asked for.
    stream       streams, asked or not.
    dies_after   hangs up behind so many answers.
    hangs        never answers.
    """

    ids: str = "token_ids"
    takes_ids: bool = True
    takes_more: bool = True
    template: tuple[int, ...] = ()
    cut_prompt: int | None = None
    seed: bool = True
    temperature: float | None = None
    stream: bool = False
    dies_after: float = float("inf")
    hangs: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)


class CompletionServer(Serving):
    def __init__(self, folder):
        super().__init__(_Handler)
        self.manners, self._lock = Manners(), Lock()
        self._model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        manners = self.manners
        prompt = body["prompt"]
        ids = prompt if isinstance(prompt, list) else self.tokenizer.encode(prompt)
        ids = [*manners.template, *ids][-(manners.cut_prompt or 0) :]
        answer = self._drawn(ids, body)
        ended = answer[-1] == self.tokenizer.eos_token_id
        logprobs = {
            "token_id:": {"tokens": [f"token_id:{token}" for token in answer]},
            "content": {"content": [{"id": token} for token in answer]},
        }
        choice: dict[str, Any] = {
            "text": self.tokenizer.decode(answer, skip_special_tokens=True),
            "finish_reason": "stop" if ended else "length",
            "logprobs": logprobs.get(manners.ids),
        }
        if manners.ids == "token_ids":
            choice["token_ids"] = answer
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(answer)}
        return {"choices": [choice], "usage": usage}

    def _drawn(self, ids, body):
        temperature = self.manners.temperature or body["temperature"]
        with self._lock, torch.no_grad():  # torch's generator is one
            torch.manual_seed(body["seed"] if self.manners.seed else len(self.manners.asked))
            output = self._model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=True,
                temperature=temperature,
                top_k=0,
                max_new_tokens=body["max_tokens"],
                pad_token_id=0,
            )
        return output[0, len(ids) :].tolist()


class _Handler(Replying):
    server: CompletionServer

    def do_POST(self):
        manners, body = self.server.manners, self.asked()
        if manners.hangs:
            self.rfile.read(1)  # until the client gives up
            return
        if len(manners.asked) >= manners.dies_after:
            return
        is_ids = isinstance(body["prompt"], list)
        if ("top_k" in body and not manners.takes_more) or (is_ids and not manners.takes_ids):
            self.reply(b'{"error": {"message": "unknown field"}}', 400)
            return
        manners.asked.append(body)
        whole = self.server.completion(body)
        if manners.stream:
            self.reply(_events(whole), Content_Type="text/event-stream")
        else:
            self.reply(json.dumps(whole).encode())


def _events(whole):
    """The completion in two chunks, and the usage behind them."""
    [choice] = whole["choices"]
    text, ids = choice["text"], choice.get("token_ids") or []
    first = {"text": text[:3], "token_ids": ids[:1], "finish_reason": None}
    second = {**choice, "text": text[3:], "token_ids": ids[1:]}
    chunks = [{"choices": [first]}, {"choices": [second]}, {"choices": [], "usage": whole["usage"]}]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
