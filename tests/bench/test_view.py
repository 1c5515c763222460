"""python -m bench.view: a static site of a store, and a page that follows a run."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from bench import view
from bench.reports.site import Handler, Site, progress
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
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
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
    for file in moved.glob("*/cell.yaml"):
        file.write_text(file.read_text().replace(str(pair_folder), "/nowhere"))
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
        tab.wait("[...document.querySelectorAll('#cells tr[data-cell]')].every(row => row.cells[3].innerText === '3')")
        assert tab.errors == []


@pytest.mark.parametrize(("given", "complaint"), [
    ("store.dir=nowhere", "store.dir=nowhere: no such folder"), ("port=70000", "port=70000"), ("bundel=x", "bundel")])
def test_wrong_commands(given: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = [] if given.startswith("store") else [f"store.dir={tmp_path}"]
    assert view.main([given, *rest]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error:") and complaint in line
