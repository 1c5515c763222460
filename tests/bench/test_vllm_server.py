"""A vLLM server with rules: one user's request never costs another's. Skipped where `make vllm` was not run."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.config.paths import TINY
from bench.config.vllm_here import PROJECT, PYTHON

pytestmark = [pytest.mark.attack, pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-vllm: run `make vllm`")]
FLAGS = ["--worker-extension-cls", "bench.run.vllm.extension.RuleWorker", "--middleware",
         "bench.run.vllm.admission.Admission", "--scheduler-cls", "bench.run.vllm.scheduler.RuleScheduler"]
SMALL = ["--max-model-len", "256", "--max-num-seqs", "16", "--block-size", "32", "--num-gpu-blocks-override", "12"]
"""Room for the keys and values of two to eight requests: the others are preempted."""
NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3, "prompt_lookup_min": 1})
PROMPT = "<|user|> Tom has 3 apples and buys 4 apples. How many apples does Tom have?<|end|><|assistant|>"
OPENMP = PYTHON.parent.parent / "lib" / "libiomp5.so"
"""vLLM's kernels are built for it, and wait for one another without it."""
RULES = ("rule=lossless", "rule=mars rule.theta=0.9", "rule=typical", "rule=near_top")


@dataclass
class Connection(http.client.HTTPConnection):
    """HTTP by a Unix socket: no port that another process may take."""

    path: str

    def __post_init__(self) -> None:
        super().__init__("localhost")

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


@dataclass
class Server:
    path: str

    def get(self, path: str, body: Any = None) -> tuple[int, str]:
        connection = Connection(self.path)
        try:
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def ask(self, body: dict[str, Any]) -> tuple[int, str]:
        return self.get("/v1/completions", {"model": "tiny", "prompt": PROMPT, "temperature": 1} | body)

    def texts(self, **body: Any) -> list[str]:
        status, reply = self.ask(body)
        assert status == 200, reply
        return [choice["text"] for choice in json.loads(reply)["choices"]]

    def preemptions(self) -> float:
        return sum(map(float, re.findall(r"^vllm:num_preemptions_total\{.*} (.+)$", self.get("/metrics")[1], re.M)))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        found = Server(f"{folder}/socket")
        process = subprocess.Popen(
            [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--uds", found.path, "--model",
             str(TINY / "target"), "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager",
             "--speculative-config", NGRAM, *SMALL, *FLAGS], cwd=PROJECT, stdout=log, stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "LEEWAY_RULE": "rule=lossless", "VLLM_NO_USAGE_STATS": "1",
                 "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1",
                 "OMP_NUM_THREADS": "1"} | ({"LD_PRELOAD": str(OPENMP)} if OPENMP.exists() else {}))
        try:
            while not Path(found.path).exists() or not is_ready(found):
                assert process.poll() is None, Path(log.name).read_text()[-3000:]
                time.sleep(0.5)
            yield found
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_ready(server: Server) -> bool:
    try:
        return server.get("/health")[0] == 200
    except OSError:
        return False


def hostile() -> Iterator[dict[str, Any]]:
    """Requests that must be refused."""
    texts = ["rule=mars rule.theta=[", 'rule=mars rule.theta="!!bool x"', 'rule=mars rule.theta="!!timestamp x"',
             'rule=mars "', "rule=mars rule.theta=" + "[" * 1900, "rule=mars rule.theta=" + "{a: " * 2000, "rule=nope",
             "rule=mars rule.theta=2", "rule=fsd", "rule=coarse_grained rule.largest=1024", "rule=base", "mars",
             "rule=dropmatch rule.variant=naive rule.heads=1024", "rule=judge rule.classifier=/etc/passwd",
             'rule=near_top "rule.protected=[99999]"', "rule=near_top rule.protected=[[1]]", "rule.theta=1",
             "x" * 100_000, 'rule=either "rule.first={name: either}"', "rule=mars rule.theta=2020-13-45"]
    for text in texts:
        yield {"vllm_xargs": {"leeway": text}, "max_tokens": 8}
        yield {"vllm_xargs": {"leeway": text, "leeway_key": "k"}, "n": 3, "logprobs": 2}
    yield from ({"leeway": "rule=mars"}, {"vllm_xargs": {"leeway_rule": "rule=mars"}}, {"vllm_xargs": {"leeway": 5}},
                {"vllm_xargs": {"leeway": "", "leeway_key": "k"}}, {"vllm_xargs": {"leeway_key": "k" * 501}},
                {"vllm_xargs": {"leeway": "rule=mars rule.theta=-1"}}, {"leeway_key": "k"},
                {"vllm_xargs": {"leeway": ""}, "seed": 1}, {"presence_penalty": 1}, {"min_tokens": 4})


def good() -> list[dict[str, Any]]:
    return [{"vllm_xargs": {"leeway": rule, "leeway_key": f"{key}/{rule}"}, "max_tokens": 16 + 4 * key,
             "ignore_eos": True, "temperature": key % 4 and 1} for key in range(5) for rule in RULES]


def test_good_requests_among_hostile_ones(server: Server) -> None:
    """200 good and 50 hostile requests side by side, and too little room: the answers are those of each alone."""
    alone = [server.texts(**body) for body in good()]
    before, bad = server.preemptions(), list(hostile())
    assert len(bad) == 50
    asked = [body for turn in range(10) for body in (*good(), *bad[turn * 5:turn * 5 + 5])]
    with ThreadPoolExecutor(25) as pool:
        replies = list(pool.map(server.ask, asked))
    refused = [reply for body, reply in zip(asked, replies, strict=True) if body in bad]
    assert [reply for reply in refused if reply[0] != 400] == []
    assert all("\n" not in json.loads(reply)["error"]["message"] for _, reply in refused)
    found = [reply for body, reply in zip(asked, replies, strict=True) if body not in bad]
    assert [status for status, _ in found] == [200] * 200
    texts = [[choice["text"] for choice in json.loads(reply)["choices"]] for _, reply in found]
    assert server.preemptions() > before
    assert [place for place, text in enumerate(texts) if text != alone[place % len(alone)]] == []


def test_n_answers_from_n_streams(server: Server) -> None:
    asked = {"vllm_xargs": {"leeway": "rule=mars rule.theta=0.9", "leeway_key": "q1"}, "max_tokens": 16}
    three = server.texts(**asked, n=3)
    assert len(set(three)) == 3
    assert server.texts(**asked, n=3) == three
    assert server.texts(**asked) == three[:1]


def test_other_ways_to_ask(server: Server) -> None:
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    for path, body in (("/v1/chat/completions", chat), ("/v1/responses", {"model": "tiny", "input": "hi"})):
        status, reply = server.get(path, body | {"vllm_xargs": {"leeway": "rule=nope"}})
        assert (status, "rule=nope: unknown" in reply) == (400, True)
        assert server.get(path, body | {"vllm_xargs": {"leeway": "rule=mars"}})[0] == 200
    for more in ({"logprobs": 2}, {"prompt_logprobs": 1}, {"echo": True, "logprobs": 1}, {"seed": 5, "n": 2}):
        assert server.texts(vllm_xargs={"leeway": "rule=mars"}, max_tokens=4, **more)
