"""engine=vllm: this project's rules in vLLM's worker. Skipped where `make vllm` was not run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from bench.config.engine import PROJECT, PYTHON
from bench.run.models import ModelPool
from bench.run.pool import MOST_DEATHS, Died
from bench.run.vllm.engine import Loaded, Vllm
from bench.run.vllm.export import drafter_of
from bench.run.vllm.server import StreamedAnswer
from methods.engine.loading import load_model
from methods.engine.source import ModelError
from methods.heads.eagle3_config import AUX_LAYERS
from methods.heads.head import load_eagle3
from tests.helpers.composing import cell_of
from tests.helpers.in_vllm import answers, differences

here = pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-vllm: run `make vllm`")
TINY = (
    "pair=tiny task=mini_gsm decoding.max_new_tokens=24 draft.length=4 engine.threads=1 "
    "engine.device=cpu"
)
PLD = f"{TINY} drafter=prompt_lookup rule=lossless engine=vllm"
CHAINS = (
    "drafter=prompt_lookup",
    "drafter=eagle3 drafter.tree=chain",
    "drafter=medusa drafter.tree=chain_5",
)
RULES = (
    (0, "rule=lossless"),
    (0, "rule=mars rule.theta=0.5"),
    (0, "rule=relaxed_topk"),
    (1, "rule=lossless"),
    (1, "rule=mars rule.theta=0.9"),
    (1, "rule=typical"),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Vllm]:
    torch.set_num_threads(1)
    engine = Vllm()
    yield engine
    engine.keep_only([])


def servers() -> list[psutil.Process]:
    """The processes of vLLM that this one has started."""
    children = psutil.Process().children()
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if "vllm.entrypoints.openai.api_server" in child.cmdline()]


@pytest.fixture(scope="module")
def native() -> ModelPool:
    return ModelPool()


@here
@pytest.mark.slow
@pytest.mark.parametrize("drafter", CHAINS)
def test_the_tokens_are_those_of_the_loop(drafter, engine, native):
    """With their counts and their NLL: the random numbers are the same too. Rules change without
    loading anew."""
    pids = set()
    for temperature, rule in RULES:
        if rule == "rule=relaxed_topk" and "medusa" in drafter:
            continue  # defined for drafters of chains alone
        words = f"{TINY} {drafter} {rule} decoding.temperature={temperature}"
        apart, nats = differences(engine, native, words, 4)
        assert not [one for one in apart if temperature == 0 and one.margin > 1e-4], (rule, apart)
        assert len(apart) <= temperature, (rule, apart)  # a random number beside a probability
        assert nats < 1e-5
        pids |= {process.pid for process in servers()}
    assert len(pids) == 1


@here
@pytest.mark.slow
def test_plain_decoding(engine, native):
    """The baseline is the loop's, as a lossless rule is."""
    apart, _ = differences(engine, native, f"{TINY} method=ar", 6)
    assert not [one for one in apart if one.margin > 1e-4]


@here
@pytest.mark.slow
def test_a_killed_process_is_started_again(engine, caplog):
    _, before = answers(engine, cell_of(PLD), 4)
    for process in servers():
        process.kill()
    _, after = answers(engine, cell_of(PLD), 4)
    assert "signal 9" in caplog.text and "answering its 4 prompts again" in caplog.text
    assert [one.output_ids for one in after] == [one.output_ids for one in before]


SCRIPTED = """#!{python}
import json, os, signal, sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer("")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{{}}")
        left = Path({left!r})
        if self.path.startswith("/pause") and (deaths := int(left.read_text())):
            left.write_text(str(deaths - 1))
            os.kill(os.getpid(), signal.SIGKILL)
        if "token_ids" not in asked:
            cycles = {{"a": [[1, [7, 8], 0, 0, "a", 1, [1]]]}}
            return self.answer(json.dumps({{"results": [cycles if asked.get("method") == "leeway_take" else []]}}))
        if asked["token_ids"] == [404]:
            return self.answer('{{"error": {{"message": "no room"}}}}', 400)
        chunks = [{{"choices": [{{"token_ids": [token], "logprobs": {{"content": [{{"logprob": -0.5}}]}}}}]}}
                  for token in (6, 7, 8)]
        self.answer("".join(f"data: {{json.dumps(chunk)}}\\n\\n" for chunk in chunks) + "data: [DONE]\\n\\n")

    def answer(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def address_string(self):
        return "here"

ThreadingUnixStreamServer(sys.argv[sys.argv.index("--uds") + 1], Handler).serve_forever()
"""


@pytest.mark.usefixtures("vllm")
def test_an_engine_that_dies_answers_again_by_the_rule_of_all_processes(
    tmp_path, monkeypatch, caplog
):
    """A server that dies as often as a file says."""
    server, left = tmp_path / "python", tmp_path / "left"
    server.write_text(SCRIPTED.format(python=sys.executable, left=str(left)))
    server.chmod(0o755)
    monkeypatch.setattr("bench.run.vllm.server.PYTHON", server)
    loaded = Loaded(cell_of(PLD))
    again = "ended (signal 9); is there enough memory?: answering its 2 prompts again"
    died = r"^engine=vllm: its process \d+ ended \(signal 9\); is there enough memory\?$"

    def answered(deaths: int, token: int = 1) -> list[StreamedAnswer]:
        left.write_text(str(deaths))
        requests = [{"ids": [token], "key": key} for key in "ab"]
        return loaded.call("generate", requests=requests, params={}, rule=["lossless", {}, {}])

    try:
        with pytest.raises(ModelError, match=r"^engine=vllm: no room$"):
            answered(0, token=404)
        first, second = answered(MOST_DEATHS - 1)
        assert caplog.text.count(again) == MOST_DEATHS - 1
        for answer, cycles in ((first, 1), (second, 0)):
            assert (answer.ids, answer.nats) == ([6, 7, 8], [0.5] * 3)
            assert len(answer.cycles) == cycles and answer.first_s <= answer.last_s
        with pytest.raises(Died, match=died):
            answered(MOST_DEATHS)
        assert len(answered(0)) == 2, "the next batch starts another one"
    finally:
        loaded.close()


@here
@pytest.mark.slow
def test_a_model_that_it_cannot_run_is_one_line(engine):
    """Heads of 24 numbers: vLLM loads them, and its attention refuses them at the first prompt."""
    with pytest.raises((ModelError, RuntimeError)) as caught:
        answers(engine, cell_of(f"{TINY} drafter=model rule=lossless engine=vllm"), 1)
    assert str(caught.value).startswith("engine=vllm: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize(("ids", "layers"), [([1, 3, 4], [2, 4, 5]), ([0, 2, 6], [0, 2, 6])])
@pytest.mark.usefixtures("vllm")
def test_layers_named_inside_eagle_config_are_exported_as_hidden_states(
    ids, layers, tmp_path, monkeypatch
):
    """vLLM reads them so; SGLang and SpecForge name outputs of layers, one less, where the first is
    1."""
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    head = tmp_path / "head"
    shutil.copytree(PROJECT / "models" / "tiny" / "eagle3", head)
    config = json.loads((head / "config.json").read_text())
    nested = {"use_aux_hidden_state": True, "norm_output": True}
    changed = config | {"eagle_config": nested | {AUX_LAYERS: ids}}
    (head / "config.json").write_text(json.dumps(changed))
    words = f"pair=tiny pair.eagle3={head} task=mini_gsm engine=vllm"
    folder = Path(drafter_of(cell_of(f"{words} drafter=eagle3 drafter.tree=chain")) or "")
    assert folder != head
    made = json.loads((folder / "config.json").read_text())
    assert made[AUX_LAYERS] == layers and made["eagle_config"] == nested
    weights, before = (load_file(path / "model.safetensors") for path in (folder, head))
    for name, value in before.items():
        assert torch.equal(weights[name].to(value.dtype), value)
    target = load_model(str(PROJECT / "models" / "tiny" / "target"), check=False)
    again = load_eagle3(str(folder), target)
    assert again.features == tuple(layers), "read again, it means the same"


@pytest.mark.parametrize(
    ("folder", "words"), [(None, "run `make vllm`"), ("vllm-0.31.1", "0.31.1 is installed")]
)
def test_without_vllm_or_with_another_version(folder, words, tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    if folder is not None:
        (tmp_path / f"lib/python3.11/site-packages/{folder}.dist-info").mkdir(parents=True)
    code = "from bench.config.engine import vllm_version\nvllm_version()"
    environment = {**os.environ, "LEEWAY_VLLM_PYTHON": str(python)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1 and words in done.stderr.splitlines()[-1]
