"""What a run writes and says holds no secret of its environment, its command line or its
configuration."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import httpx
import pytest
import wandb

from bench.run.claims import Passes
from bench.run.endpoint import Endpoint
from bench.run.launch import submit, works_of
from bench.run.run import measure
from bench.view import main as view
from results.store.cells import Store
from results.store.errors import log_to_stderr, redacted_word
from tests.bench.conftest import WORD
from tests.helpers.tables import rows

PLANTED = re.compile(rb"FAKE[A-Z]+-[a-z]{3}")
VARIABLES = {
    "SLURM_JWT": "FAKEJWT-aaa",
    "HF_TOKEN": "FAKEHF-bbb",
    "WANDB_API_KEY": "FAKEWB-" + "c" * 40,
    "CUDA_PAT": "FAKEPAT-jjj",
    "HF_HUB_TOKENS": "FAKETOKS-ggg",
    "MY_TOKEN": "FAKEOWN-fff",
    "OPENAI_API_KEY": "FAKEOAI-kkk",
    "OMP_PASSWORD": "FAKEOMP-nnn",
    "MKL_LICENSE": "FAKEMKL-ooo",
    "LEEWAY_DB": "FAKEDB-ppp",
    "HF_ENDPOINT": "http://u:FAKEHUB-qqq@127.0.0.1:9?sig=FAKESIG-rrr",
    "HTTPS_PROXY": "http://u:FAKEPROXY-iii@127.0.0.1:9",
    "WANDB_BASE_URL": "http://me:FAKEWBURL-eee@127.0.0.1:9",
}
JUDGED = (
    "judge.base_url='http://u:FAKEJUDGE-lll@127.0.0.1:9/v1?api-key=FAKEQUERY-mmm' judge.model=m "
    "judge.retries=0 task=mt_bench task.system='FAKEOWN-fff, be brief'"
)


@pytest.fixture(autouse=True)
def planted(tmp_path, monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    for name in ("DIR", "CACHE_DIR", "DATA_DIR", "CONFIG_DIR"):
        (tmp_path / "client").mkdir(exist_ok=True)
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / "client"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb.teardown()
    yield
    wandb.teardown()


def leaks(folder: Path) -> set[str]:
    """Secrets in the files of a folder, and in their names."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    texts = [*(file.read_bytes() for file in files), *(str(file).encode() for file in files)]
    return {f"{found.decode()}" for text in texts for found in PLANTED.findall(text)}


def test_a_run(command, tmp_path):
    """Store, output, tracker's files and what it prints. The judge does not answer, which is said
    with its URL."""
    done = command(JUDGED, "method=sps tracker=wandb n=1 timed=1 trace=true", status=1)
    assert "judge.base_url=http://(hidden)@127.0.0.1:9/v1?api-key=(hidden): no reply" in done.err
    assert any((tmp_path / "client").rglob("*"))
    assert view([f"store.dir={done.store.root}", f"bundle={tmp_path / 'page'}"]) == 0
    assert leaks(tmp_path) == set() and not PLANTED.findall((done.out + done.err).encode())
    assert done.cell.config()["task"]["system"] == "(hidden), be brief"
    recorded = done.cell.environment()
    assert recorded["variables"]["HF_ENDPOINT"] == "http://(hidden)@127.0.0.1:9?sig=(hidden)"
    assert "judge.base_url='http://(hidden)@127.0.0.1:9/v1?api-key=(hidden)'" in recorded["argv"]


REFUSED = """
judge.base_url=ftp://u:FAKEJUDGE-lll@h judge.model=m
task=mt_bench task.max_new_tokens=FAKEOWN-fff
pair.target=/none/FAKEOWN-fff
task.nonsense=http://u:FAKEQUERY-mmm@h
store.dir=/proc/FAKEOWN-fff
rule=FAKEOWN-fff
decoding.temperature=[FAKEOWN-fff]
"""


@pytest.mark.parametrize("words", REFUSED.strip().splitlines())
def test_refused_commands(words, command):
    done = command("method=sps n=1", words, status=2)
    assert not PLANTED.findall((done.out + done.err).encode()), done.err


def test_failures_and_warnings(capsys, tmp_path):
    """What a library raises, as a record, a warning and a traceback."""
    error = RuntimeError("cannot reach http://u:FAKEJUDGE-lll@h/x with FAKEHF-bbb")
    folder = Store(tmp_path / "store").cell("one")
    folder.write_failure(str(error))
    assert folder.failure() == "cannot reach http://(hidden)@h/x with (hidden)"
    log_to_stderr()
    try:
        raise error
    except RuntimeError as raised:
        sys.excepthook(type(raised), raised, raised.__traceback__)
    said = capsys.readouterr().err
    assert (
        "Traceback" in said
        and "RuntimeError: cannot reach http://(hidden)@h/x with (hidden)" in said
    )
    assert leaks(tmp_path) == set()


def test_jobs_of_slurm(hydra, tmp_path, monkeypatch):
    """Submitit's script, and the command in its pickles."""
    (tmp_path / "bin").mkdir()
    for program in (tmp_path / "bin" / name for name in ("sbatch", "srun")):
        program.write_text("#!/bin/sh\necho Submitted batch job 7\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    words = ["bench", *WORD.findall(JUDGED), "+hub.token=FAKEQUERY-mmm"]
    monkeypatch.setattr(sys, "argv", words)
    overrides = f"method=sps n=1 task=mt_bench launch=slurm launch.logs={tmp_path / 'logs'}".split()
    point = hydra.point(overrides)
    other = hydra.point([*overrides, "launch.setup=['export HF_TOKEN=FAKEHF-bbb']"])
    passes = Passes(frozenset(), frozenset(), 1, 1)
    [work] = works_of(measure, [point.cell], passes, Store(tmp_path / "store"))
    submit([work], 0, point.settings.launch.options)
    assert leaks(tmp_path / "logs") == set()
    with pytest.raises(ValueError, match=r"export HF_TOKEN=\(hidden\): holds a secret"):
        submit([work], 0, other.settings.launch.options)


def endpoint(url: str, key: str) -> Endpoint:
    return Endpoint(url, key, timeout_s=1, retries=0, wait_s=0)


def test_the_judge_gets_what_the_url_holds():
    """A user and a password become the header for them, and a query stays behind the path."""
    path = "/chat/completions"
    asked = endpoint("https://u:p%40ss@h:8/v1/?api-version=3", "").address(path)
    assert (
        str(httpx.Request("POST", **asked).url)
        == "https://u:p%40ss@h:8/v1/chat/completions?api-version=3"
    )
    keyed = endpoint("https://u:p@h/v1", "k").address(path)
    assert keyed["headers"] == {"Authorization": "Bearer k"} and not keyed["url"].userinfo


WORDS = rows("""
+hub.token=hf_abc | +hub.token=(hidden)
api_key=abc | api_key=(hidden)
PASSWORD=x | PASSWORD=(hidden)
hub.pat=x | hub.pat=(hidden)
path=/x | path=/x
decoding.max_new_tokens=12 | decoding.max_new_tokens=12
rule.theta=0.9 | rule.theta=0.9
-m | -m
a=http://h:80/x@v2 | a=http://h:80/x@v2
a=http://u:p/w@h:80/x | a=http://(hidden)@h:80/x
a=http://u:p@w@h/x?y | a=http://(hidden)@h/x?y
http://token@h/x | http://(hidden)@h/x
a=s3://h/x?api-version=2&X-Sig=b&c= | a=s3://h/x?api-version=2&X-Sig=(hidden)&c=
https://h/x#access_token=b | https://h/x#access_token=(hidden)
say a=b@c?d=e | say a=b@c?d=e
'postgres://u:p@h/d' and http://v:q@i | 'postgres://(hidden)@h/d' and http://(hidden)@i
""")


@pytest.mark.parametrize(("word", "kept"), WORDS)
def test_words_of_a_command(word, kept):
    assert redacted_word(word) == kept and redacted_word(kept) == kept
