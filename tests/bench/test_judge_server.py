"""A judge behind `transformers serve`, a server that others wrote, with the embedded target as its model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from results.store.judge import JudgeReplies
from tasks.judge_prompts import JudgePrompts
from tests.helpers.dataset_rows import write_rows
from tests.helpers.ports import reserved_port
from tests.helpers.summaries import written

MODEL = Path(__file__).parents[2] / "models" / "tiny" / "target"
MISSING = [name for name in ("fastapi", "uvicorn", "openai") if find_spec(name) is None]
QUESTIONS = [{"question_id": n, "category": "writing", "turns": [f"Name {n} rivers.", "Name their countries."]}
             for n in range(2, 8)]
REPLIES = 2 * len(QUESTIONS)  # a grade a turn
TEMPLATES = [
    {"name": "single-v1", "system_prompt": "Judge.", "prompt_template": "Grade: {question} {answer}"},
    {"name": "single-v1-multi-turn", "system_prompt": "Judge.",
     "prompt_template": "Grade: {question_1} {answer_1} {question_2} {answer_2}"}]


class Server:
    """`transformers serve` on one port; `start` begins it (again), with a log of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.process: subprocess.Popen | None = None

    def start(self, log: str) -> None:
        words = ["serve", str(MODEL), "--host", "127.0.0.1", "--port", str(self.port), "--device", "cpu"]
        with open(self.folder / log, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "transformers.cli.transformers", *words], stdout=file, stderr=file,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"the server did not start: {(self.folder / log).read_text()[-2000:]}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def answered(self, log: str) -> int:
        lines = (self.folder / log).read_text().splitlines()
        return sum("POST /v1/chat/completions" in line and "200 OK" in line for line in lines)


@pytest.fixture
def server(tmp_path):
    with reserved_port() as port:
        made = Server(tmp_path, port)
        yield made
        if made.process is not None:
            made.kill()


def verdicts(store: Path) -> list[bytes]:
    return [line for path in store.glob("*/verdicts.jsonl") for line in path.read_bytes().splitlines(keepends=True)]


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"transformers serve needs {', '.join(MISSING)}: pip install fastapi uvicorn")
@pytest.mark.skipif(not (MODEL / "model.safetensors").is_file(), reason=f"no embedded target at {MODEL}")
def test_a_real_server_is_killed_and_nothing_is_judged_twice(command, server, tmp_path, monkeypatch):
    url = f"http://127.0.0.1:{server.port}/v1"
    prompts = write_rows(tmp_path, "judge_prompts", TEMPLATES)
    common = ["task=mt_bench", f"task.path={write_rows(tmp_path, 'mt_bench', QUESTIONS)}", "task.system=null",
              "method=sps", "n=null", f"judge.base_url={url}", "judge.max_tokens=32", "judge.retries=1",
              f"judge.prompts={prompts}", "judge.wait_s=0.1"]
    words = [*common, f"judge.model={MODEL}"]
    server.start("first.log")
    wrong = command(*common, "judge.model=another")
    assert wrong.status == 1 and "no reply from another (HTTP 400" in wrong.err and "Server is pinned to" in wrong.err
    assert not verdicts(tmp_path / "store")

    append = JudgeReplies.append

    def killing(replies: JudgeReplies, *given) -> None:
        append(replies, *given)
        if len(verdicts(tmp_path / "store")) == REPLIES // 3:
            server.kill()

    with monkeypatch.context() as patch:
        patch.setattr(JudgeReplies, "append", killing)
        first = command(*words)
    kept = verdicts(tmp_path / "store")
    assert len(kept) == REPLIES // 3, "it was killed half-way"
    [line] = first.err.splitlines()
    assert first.status == 1 and line.startswith(f"failed: {first.cell.path.name}: judge.base_url={url}: no reply from")
    assert line.endswith("replies so far are kept, re-running the same command resumes judging")
    assert written(first.cell).judge is None
    assert server.answered("first.log") - len(kept) in (0, 1), "one reply may have been lost on its way"

    server.start("second.log")
    second = command(*words, "summary=json")
    server.kill()
    assert second.status == 0, second.err
    found = verdicts(tmp_path / "store")
    assert found[:len(kept)] == kept and len(found) == REPLIES
    assert len({json.loads(line)["key"] for line in found}) == REPLIES
    assert server.answered("second.log") == REPLIES - len(kept), "only what was missing was asked"
    # the embedded target grades nothing: what holds no verdict is counted, and no number stands in its place
    said, replies = second.last_line["judge"], [json.loads(line)["reply"] for line in found]
    unread = sum(JudgePrompts(str(prompts)).rating(reply) is None for reply in replies)
    assert all(replies) and (said["replies"], said["unread"]) == (REPLIES, unread) and unread > REPLIES // 2
    if unread == REPLIES:  # other weights may happen to print a number in brackets
        assert (said["score"], said["ci95"], said["n"]) == (None, None, 0)
        assert f"no verdict in {REPLIES} replies of {MODEL}" in second.out
    else:
        assert f"{unread} of {REPLIES} replies without a verdict" in second.out

    third = command(*words)  # the server is gone
    assert third.status == 0 and written(third.cell).plain["judge"] == second.last_line["judge"]
    assert verdicts(tmp_path / "store") == found
