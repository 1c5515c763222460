"""vLLM's own server, started for `engine=vllm`: prompts by `/inference/v1/generate`, the rules'
records by `/collective_rpc`, which vLLM offers in its development mode alone.

It listens on a Unix socket in a folder of this user: vLLM's API key guards `/v1` and `/inference`,
but neither `/collective_rpc` nor `/pause`, which a port of the loopback would open to every user of
the machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from bench.config.engine import PROJECT, PYTHON
from bench.config.paths import socket_folder
from bench.run.pool import Died
from methods.engine.source import ModelError

ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TOKENIZERS_PARALLELISM": "false",
}
FLAGS = [
    "--worker-extension-cls",
    "bench.run.vllm.extension.RuleWorker",
    "--scheduler-cls",
    "bench.run.vllm.scheduler.RuleScheduler",
    "--no-async-scheduling",
    "--enable-scale-out",
    "--uvicorn-log-level",
    "error",
]
POLL_S = 0.1
"""Seconds between two looks at whether the server is ready."""
END_S = 10.0
"""Seconds that a server whose engine has died may take to end by itself."""
CAUSE = re.compile(r"\b(\w+(?:Error|Exception): .+)")
CONSEQUENCES = (
    "EngineDeadError",
    "initialization failed",
    "BrokenPipeError",
    "ConnectionResetError",
    "CancelledError",
)
"""In lines that say only that something failed before."""


@dataclass(slots=True)
class StreamedAnswer:
    """Tokens of a request, the nats of each if they were asked for, and the seconds from the moment
    at which all requests of the call had been handed in to its first and its last token."""

    ids: list[int] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    first_s: float = 0.0
    last_s: float = 0.0
    cycles: list[Any] = field(default_factory=list)


class VllmServer:
    """One engine, as `bench.run.pool.Process`; a task is the name of a call below and its
    arguments. Raises ModelError, and Died where the server ends before it is ready."""

    def __init__(
        self,
        variables: Mapping[str, str],
        settings: Mapping[str, Any],
        target: Sequence[str],
        draft: Sequence[str] | None,
    ) -> None:
        """`settings`: vLLM's options; `target`, `draft`: source and fingerprint, as files of rules
        name them."""
        self._folder = tempfile.TemporaryDirectory(prefix="leeway-vllm-", dir=socket_folder())
        self._socket, self._task = f"{self._folder.name}/socket", dict[str, Any]()
        self._log = (Path(self._folder.name) / "log").open("w+")
        self._process = subprocess.Popen(
            [
                str(PYTHON),
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--uds",
                self._socket,
                *FLAGS,
                *flags(settings),
            ],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={
                **ENVIRONMENT,
                **os.environ,
                **variables,
                "PYTHONPATH": str(PROJECT),
                "LEEWAY_PARENT": str(os.getpid()),
                "LEEWAY_MODELS": json.dumps([target, draft]),
            },
        )
        try:
            self.send({"call": "start"})
            self.receive()
        except (EOFError, OSError):
            death = self.died()
            self.end()
            raise death from None
        except BaseException:
            self.end()
            raise

    def send(self, task: Mapping[str, Any]) -> None:
        if self._process.poll() is not None:
            raise BrokenPipeError
        self._task = dict(task)

    def receive(self) -> Any:
        """Do the task. Raises ModelError with the engine's own line, EOFError."""
        seen = len(self._errors())
        try:
            return asyncio.run(self._do(**self._task))
        except (httpx.TransportError, httpx.HTTPStatusError, EOFError) as error:
            if causes := self._errors()[seen:]:
                raise ModelError(f"engine=vllm: {hinted(causes[-1])}") from error
            raise EOFError from error

    def fileno(self) -> int:
        """That of the log: a file is always ready, and `receive` waits."""
        return self._log.fileno()

    def died(self) -> Died:
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:  # its engine has died, not the server itself
            code = -signal.SIGKILL
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        errors = self._errors()
        said = f": {hinted(errors[-1])}" if errors else "; is there enough memory?"
        return Died(f"engine=vllm: its process {self._process.pid} ended ({cause}){said}", cause)

    def end(self) -> None:
        """End the server with all its processes, and free its memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    async def _do(self, call: str, **arguments: Any) -> Any:
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=self._socket, verify=False),
            base_url="http://vllm",
            timeout=None,
            limits=httpx.Limits(max_connections=None),
        ) as client:
            return await getattr(self, f"_{call}")(client, **arguments)

    async def _start(self, client: httpx.AsyncClient) -> None:
        """Wait until the models are loaded."""
        while True:
            with suppress(httpx.TransportError):
                if (await client.get("/health")).is_success:
                    return
            if self._process.poll() is not None:
                raise EOFError
            await asyncio.sleep(POLL_S)

    async def _extension(
        self, client: httpx.AsyncClient, method: str, args: Sequence[Any] = ()
    ) -> Any:
        """A call of the worker's extension: the answer of the first rank."""
        reply = await client.post("/collective_rpc", json={"method": method, "args": args})
        return reply.raise_for_status().json()["results"][0]

    async def _generate(
        self,
        client: httpx.AsyncClient,
        requests: Sequence[Mapping[str, Any]],
        params: Mapping[str, Any],
        rule: Sequence[Any],
    ) -> list[StreamedAnswer]:
        """Answer requests by a rule, as `RuleWorker.leeway_use` takes it; the engine begins when
        all of them have been handed in."""
        if refusal := await self._extension(client, "leeway_use", rule):
            raise ModelError(f"engine=vllm: {refusal}")
        (await client.post("/pause", params={"mode": "keep"})).raise_for_status()
        clock: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        handed_in = [asyncio.Event() for _ in requests]
        asked = [
            self._answer(client, request, params, ready, clock)
            for request, ready in zip(requests, handed_in, strict=True)
        ]
        answering = asyncio.gather(*asked, return_exceptions=True)
        for ready in handed_in:
            await ready.wait()
        (await client.post("/resume")).raise_for_status()
        clock.set_result(time.perf_counter())
        outcomes = await answering
        taken = await self._extension(client, "leeway_take")
        answers: list[StreamedAnswer] = []
        for request, answer in zip(requests, outcomes, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(replace(answer, cycles=taken.get(request["key"], [])))
        return answers

    async def _answer(
        self,
        client: httpx.AsyncClient,
        request: Mapping[str, Any],
        params: Mapping[str, Any],
        handed_in: asyncio.Event,
        clock: asyncio.Future[float],
    ) -> StreamedAnswer:
        keyed = {**params, "extra_args": {"leeway_key": request["key"]}}
        body = {"token_ids": request["ids"], "sampling_params": keyed, "stream": True}
        try:
            async with client.stream("POST", "/inference/v1/generate", json=body) as reply:
                handed_in.set()
                if reply.is_client_error:
                    raise ModelError(f"engine=vllm: {message(json.loads(await reply.aread()))}")
                return await _read(reply.raise_for_status(), clock)
        finally:
            handed_in.set()

    async def _next_logits(
        self, client: httpx.AsyncClient, ids: list[int], rule: Sequence[Any]
    ) -> list[float]:
        """The target's raw logits behind these tokens."""
        params = {"max_tokens": 1, "temperature": 0.0}
        await self._generate(client, [{"ids": ids, "key": ""}], params, rule)
        logits: list[float] = await self._extension(client, "leeway_next_logits")
        return logits

    def _errors(self) -> list[str]:
        """What the log says went wrong, the last of it last."""
        lines = CAUSE.findall(Path(self._log.name).read_text(errors="replace"))
        return [line[:500] for line in lines if not any(name in line for name in CONSEQUENCES)]


async def _read(reply: httpx.Response, clock: asyncio.Future[float]) -> StreamedAnswer:
    """The answer in a stream of server-sent events. Raises ModelError."""
    answer = StreamedAnswer()
    async for line in reply.aiter_lines():
        if not line.startswith("data: {"):
            continue
        chunk, now = json.loads(line.removeprefix("data: ")), time.perf_counter()
        if "error" in chunk:
            raise ModelError(f"engine=vllm: {message(chunk)}")
        choice = chunk["choices"][0]
        if choice["token_ids"]:
            answer.last_s = now - await clock
            answer.first_s = answer.first_s or answer.last_s
        answer.ids += choice["token_ids"]
        answer.nats += [
            -token["logprob"] for token in (choice["logprobs"] or {"content": []})["content"]
        ]
    return answer


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Options as vLLM's command line reads them; those that are False are left out."""
    words = []
    for name, value in settings.items():
        if value is not False:
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(value if isinstance(value, str) else json.dumps(value))
    return words


def hinted(cause: str) -> str:
    """vLLM names its own options where memory is short."""
    if "memory" in cause:
        return (
            f"{cause.rstrip('.')}; here engine.cpu_cache_gib says how much on a CPU, "
            "engine.memory on a GPU"
        )
    return cause


def message(reply: Any) -> str:
    """The first line of an error that vLLM's server answers with."""
    error = reply.get("error", reply)
    said = error.get("message", error) if isinstance(error, dict) else error
    return str(said).splitlines()[0][:500]
