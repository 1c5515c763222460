"""vLLM in a process of its own: `python -m bench.run.vllm.server`, started by `bench.run.vllm.process`.

One JSON object a line comes in by standard input, `{"call": NAME, …}`, and one goes out for it, `{"ok": RESULT}` or
`{"error": LINE}`. The environments on both sides share nothing else. Runs in vLLM's environment."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

PARENT_S = 1.0
"""Seconds between two looks at whether the process that started this one still runs."""


@dataclass(slots=True)
class Answer:
    """What came of a request: its tokens, the nats of each if they were asked for, and seconds since the call began
    until it was handed in, its first token and its last."""

    ids: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    begun_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0


class Server:
    """One engine: the calls of the protocol are its methods."""

    def __init__(self) -> None:
        self.llm: Any = None
        self.numbers = 0

    def load(self, engine: Mapping[str, Any], target: list[str], draft: list[str] | None) -> dict[str, Any]:
        """Load vLLM with the arguments of `vllm.LLM`; source and fingerprint of the models for the rules' files."""
        import vllm
        from vllm import LLM

        self.llm = LLM(**engine, worker_extension_cls="bench.run.vllm.extension.RuleWorker", async_scheduling=False,
                       scheduler_cls="bench.run.vllm.scheduler.RuleScheduler")
        self.llm.collective_rpc("leeway_start", args=(target, draft, True))
        gc.freeze()
        return {"version": vllm.__version__, "max_model_len": self.llm.llm_engine.model_config.max_model_len}

    def generate(self, requests: Sequence[Mapping[str, Any]], params: Mapping[str, Any],
                 concurrency: int | None) -> dict[str, Any]:
        """Answer requests, at most `concurrency` at a time: a request that has ended makes room for the next."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        engine, answers, waiting = self.llm.llm_engine, dict[str, Answer](), list(requests)[::-1]
        began = time.perf_counter()
        running = 0
        while waiting or running:
            while waiting and running < (concurrency or len(requests)):
                request, self.numbers, running = waiting.pop(), self.numbers + 1, running + 1
                own = params if "leeway" not in params.get("extra_args", {}) else {
                    **params, "extra_args": {**params["extra_args"], "leeway_key": request["key"]}}
                settings = SamplingParams(**own, output_kind=RequestOutputKind.DELTA)
                name = f"{request['key']} {self.numbers}"
                answers[name] = Answer(begun_s=time.perf_counter() - began)
                engine.add_request(name, {"prompt_token_ids": request["ids"]}, settings)
            for output in engine.step():
                answer, [one], now = answers[output.request_id], output.outputs, time.perf_counter() - began
                if one.token_ids:
                    answer.first_s, answer.last_s = answer.first_s or now, now
                answer.ids += one.token_ids
                answer.nats += [-row[token].logprob for row, token in zip(one.logprobs or (), one.token_ids,
                                                                         strict=False)]
                running -= output.finished
        taken, *_ = self.llm.collective_rpc("leeway_take")
        refused, *_ = self.llm.collective_rpc("leeway_refusals")
        if refused:
            raise ValueError(refused[0])
        return {"answers": [[one.ids, one.nats, one.begun_s, one.first_s, one.last_s, taken.get(request["key"], [])]
                            for request, one in zip(requests, answers.values(), strict=True)]}

    def next_logits(self, ids: list[int]) -> list[float]:
        """The target's raw logits behind these tokens."""
        self.generate([{"ids": ids, "key": ""}], {"max_tokens": 1, "temperature": 0.0}, None)
        logits, *_ = self.llm.collective_rpc("leeway_next_logits")
        return list(logits)

    def extension(self, method: str, args: list[Any]) -> Any:
        """A call of the worker's extension; the answer of the first rank."""
        first, *_ = self.llm.collective_rpc(method, args=tuple(args))
        return first


def one_line(error: BaseException) -> str:
    """The first line of what went wrong that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__


def end_with_parent(parent: int) -> None:
    """End this process at once when the one that started it has ended."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(1)


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer calls until the other end is closed."""
    server = Server()
    for line in requests:
        call = json.loads(line)
        try:
            reply = {"ok": getattr(server, call.pop("call"))(**call)}
        except Exception as error:  # whatever the engine raises goes to the process that asked
            traceback.print_exc()
            reply = {"error": one_line(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is not part of the protocol
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    serve(sys.stdin, channel)
    os._exit(0)
