"""python -m bench.view: a static site of a store, and a page that follows a run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench import view
from bench.reports.site import MOST_CONNECTIONS, Handler, Server, Site, progress
from results.store.cells import Store
from tests.helpers import browser


@pytest.fixture
def measured(command) -> Store:
    """Two cells and their baseline."""
    for method in ("sps", "mars"):
        assert command(f"method={method}", "timed=0", "trace=true", "decoding.temperature=1").status == 0
    return command("method=mars", "timed=0", "trace=true", "decoding.temperature=1").store


@pytest.fixture
def server(measured: Store, tmp_path: Path) -> Iterator[str]:
    handler = partial(Handler, Site(measured, tmp_path / "site"), directory=str(tmp_path / "site"))
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def data(page: str, part: str) -> dict:
    """A part of a page."""
    text = page.partition(f'data-part="{part}">')[2].partition("</script>")[0]
    return json.loads(text)


def test_a_bundle_shows_every_cell(measured: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view.main([f"store.dir={measured.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
    page = (tmp_path / "bundle" / "index.html").read_text()
    assert str(tmp_path / "bundle" / "index.html") in capsys.readouterr().out
    [group] = data(page, "index")["groups"]
    assert [cell["method"] for cell in group["cells"]] == ["ar", "lossless", "mars"] and len(group["ids"]) == 3
    assert page.count("<tr data-cell=") == 3 and "live.json" not in page
    answers = data(page, f"answers:{group['cells'][2]['key']}:0")
    samples = {sample.id: sample for sample in measured.cell(group["cells"][2]["key"]).good_samples()}
    for name, one in zip(group["ids"], answers, strict=True):
        assert all("m" in turn for turn in one["turns"]), "its trace"
        assert len(samples[name].output_ids) == sum(len(turn["t"]) for turn in one["turns"])


def test_a_store_whose_models_are_elsewhere(measured: Store, tmp_path: Path, pair_folder: Path) -> None:
    """Somebody else's store: texts without tokens."""
    moved = tmp_path / "moved"
    shutil.copytree(measured.root, moved)
    for folder in Store(moved).cells():
        folder.write_config(json.loads(json.dumps(folder.config()).replace(str(pair_folder), "/nowhere")))
    assert view.main([f"store.dir={moved}", f"bundle={tmp_path / 'bundle'}"]) == 0
    page = (tmp_path / "bundle" / "index.html").read_text()
    [group] = data(page, "index")["groups"]
    assert "its tokenizer is not on this machine" in group["about"] and len(group["cells"]) == 3
    assert all("text" in turn for one in data(page, f"answers:{group['key']}:0") for turn in one["turns"])


def test_it_follows_a_run(server: str, measured: Store) -> None:
    def get(path: str) -> str:
        with urllib.request.urlopen(f"{server}{path}") as answer:
            return answer.read().decode()

    page = get("/")
    assert "live.json" in page and page.count("<tr data-cell=") == 3
    told = json.loads(get("/live.json"))["cells"]
    assert [cell["answers"] for cell in told] == [3, 3, 3] and sum(cell["complete"] for cell in told) >= 2
    assert told == progress(measured)["cells"]
    samples = next(iter(measured.root.glob("*mars*"))) / "samples.jsonl"
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:1]))
    assert sorted(cell["answers"] for cell in json.loads(get("/live.json"))["cells"]) == [1, 3, 3]
    request = urllib.request.Request(f"{server}/live.json", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)


def test_a_damaged_cell_hides_no_other(server: str, measured: Store, caplog: pytest.LogCaptureFixture) -> None:
    with next(iter(measured.root.glob("*mars*"))).joinpath("samples.jsonl").open("a") as samples:
        samples.write("not a sample\n")
    with urllib.request.urlopen(f"{server}/") as answer:
        assert answer.read().decode().count("<tr data-cell=") == 2
    assert "is not shown" in caplog.text and "samples.jsonl line 4" in caplog.text
    with urllib.request.urlopen(f"{server}/live.json") as answer:
        told = json.loads(answer.read())["cells"]
    assert [("error" in cell, cell.get("answers")) for cell in told if "error" not in cell] == [(False, 3)] * 2
    assert sum("samples.jsonl line 4" in cell.get("error", "") for cell in told) == 1


@pytest.mark.parametrize("name", ["environment.json", "timed.jsonl", "summary.json", "trace/00000.parquet"])
def test_any_damaged_file_hides_no_other_cell(measured: Store, tmp_path: Path, name: str,
                                              caplog: pytest.LogCaptureFixture) -> None:
    next(iter(measured.root.glob("*mars*"))).joinpath(name).write_bytes(b"\xff{\n")
    assert view.main([f"store.dir={measured.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
    assert (tmp_path / "bundle" / "index.html").read_text().count("<tr data-cell=") == 2 and name in caplog.text


def test_clients_that_misbehave(server: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    answer_one, running, busy = Server.process_request_thread, [], [0]

    def counted(*given) -> None:
        running.append(given)
        busy.append(len(running))
        answer_one(*given)
        running.remove(given)

    monkeypatch.setattr(Server, "process_request_thread", counted)
    monkeypatch.setattr(Handler, "timeout", 1)
    request = urllib.request.Request(f"{server}/", headers={"Host": "evil.example"}, method="HEAD")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)
    port = int(server.rpartition(":")[2])
    half = [socket.create_connection(("127.0.0.1", port)) for _ in range(3 * MOST_CONNECTIONS)]
    for one in half:
        with contextlib.suppress(OSError):
            one.sendall(b"GET / HT")
    for one in half[::2]:  # clients that leave early
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    for one in half[1::2]:  # turned away, or ended by the server's own limit
        with contextlib.suppress(ConnectionError):
            assert one.recv(1) == b""
        one.close()
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join()
    with urllib.request.urlopen(f"{server}/live.json") as answer:
        assert len(json.loads(answer.read())["cells"]) == 3
    assert 1 < max(busy) <= MOST_CONNECTIONS
    assert "Traceback" not in caplog.text + capsys.readouterr().err


def test_a_terminated_server_leaves_nothing(measured: Store, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "bench.view", f"store.dir={measured.root}", "port=0"],
                               cwd=Path(__file__).parents[2], env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    address = process.stdout.readline().split()[0]
    with urllib.request.urlopen(address) as answer:
        assert answer.status == 200
    assert list(tmp_path.glob("tmp*/index.html"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143 and not list(tmp_path.glob("tmp*")) and process.stderr.read() == ""


def test_prompts_that_have_changed_are_not_shown(command, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "p0", "prompt": "The cat sat on the mat."}\n')
    store = command("method=sps", "task=prompts", f"task.path={file}", "timed=0", "n=1").store

    def shown() -> dict:
        assert view.main([f"store.dir={store.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
        [group] = data((tmp_path / "bundle" / "index.html").read_text(), "index")["groups"]
        return group

    before = shown()
    assert "without the prompts" not in before["about"]
    file.write_text('{"id": "p0", "prompt": "A dog stood in the rain."}\n')
    after = shown()
    assert "without the prompts: the files of the task have changed since" in after["about"]
    assert len(after["cells"]) == len(before["cells"]) == 2, "the answers are shown"
    assert "A dog stood" not in (tmp_path / "bundle" / "index.html").read_text()


@pytest.mark.slow
def test_the_served_page_says_what_is_new(server: str, measured: Store, tmp_path: Path) -> None:
    samples = next(iter(measured.root.glob("*mars*"))) / "samples.jsonl"
    whole = samples.read_text()
    samples.write_text("".join(whole.splitlines(keepends=True)[:1]))
    with browser.page(tmp_path / "profile") as tab:
        tab.look()
        tab.open(f"{server}/")
        tab.wait("document.getElementById('answers').dataset.ready")
        samples.write_text(whole)
        tab.wait("document.querySelector('.news').innerText.includes('1 cell has new answers')")
        assert "3 answers" in tab.text(".news")
        tab.click(".news button")
        tab.wait("[...document.querySelectorAll('#cells tr[data-cell]')]"  # behind a fold where the page has an opening
                 ".every(row => row.cells[3].textContent.trim() === '3')")
        assert tab.errors == []


@pytest.mark.parametrize(("given", "complaint"), [
    ("store.dir=nowhere", "store.dir=nowhere: no such folder"), ("port=70000", "port=70000"), ("bundel=x", "bundel")])
def test_wrong_commands(given: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = [] if given.startswith("store") else [f"store.dir={tmp_path}"]
    assert view.main([given, *rest]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error:") and complaint in line
