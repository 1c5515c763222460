"""Commands over a store: its page, and files for other programs."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import exchange, view
from results.store.cells import Store
from tests.helpers.commands import run


@pytest.fixture(scope="module")
def whole(pair: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two cells and their baseline."""
    folder = tmp_path_factory.mktemp("viewed")
    ended = run(
        "bench",
        "-m",
        *pair,
        "method=sps,mars",
        "n=3",
        "timed=0",
        "trace=true",
        "decoding.temperature=1",
        "decoding.max_new_tokens=12",
        f"store.dir={folder / 'store'}",
        f"output.dir={folder / 'out'}",
    )
    assert ended.status == 0, ended.err
    return folder / "store"


@pytest.fixture
def measured(whole: Path, tmp_path: Path) -> Store:
    """A copy of it."""
    return Store(shutil.copytree(whole, tmp_path / "copy"))


def data(folder: Path, part: str = "index") -> list[Any]:
    """A part of the page in a folder."""
    text = (
        (folder / "index.html")
        .read_text()
        .partition(f'data-part="{part}">')[2]
        .partition("</script>")[0]
    )
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_a_bundle_shows_every_cell(
    measured: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert view.main([f"store.dir={measured.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
    assert str(tmp_path / "bundle" / "index.html") in capsys.readouterr().out
    [group] = data(tmp_path / "bundle")
    assert [name for _, name, _ in group["cells"]] == ["ar", "lossless", "mars"] and len(
        group["prompts"]
    ) == 3
    key = group["cells"][2][0]
    samples = {sample.id: sample for sample in measured.cell(key).good_samples()}
    for (name, _), one in zip(group["prompts"], data(tmp_path / "bundle", key), strict=True):
        assert all("m" in turn for turn in one["turns"]), "its trace"
        assert len(samples[name].output_ids) == sum(len(turn["t"]) for turn in one["turns"])


def test_a_store_whose_models_are_elsewhere(
    measured: Store, tmp_path: Path, pair_folder: Path
) -> None:
    """Somebody else's store: texts without tokens."""
    moved = tmp_path / "moved"
    shutil.copytree(measured.root, moved)
    for folder in Store(moved).cells():
        folder.write_config(
            json.loads(json.dumps(folder.config()).replace(str(pair_folder), "/nowhere"))
        )
    assert view.main([f"store.dir={moved}", f"bundle={tmp_path / 'bundle'}"]) == 0
    [group] = data(tmp_path / "bundle")
    assert "its tokenizer is not on this machine" in group["title"] and len(group["cells"]) == 3
    assert all(
        "text" in turn
        for one in data(tmp_path / "bundle", group["cells"][0][0])
        for turn in one["turns"]
    )


@pytest.mark.parametrize(
    "name", ["environment.json", "samples.jsonl", "timed.jsonl", "trace/00000.parquet"]
)
def test_any_damaged_file_hides_no_other_cell(
    measured: Store, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    next(iter(measured.root.glob("*mars*"))).joinpath(name).write_bytes(b"\xff{\n")
    assert view.main([f"store.dir={measured.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
    [group] = data(tmp_path / "bundle")
    assert len(group["cells"]) == 2 and name in caplog.text


def test_prompts_that_have_changed_are_not_shown(command, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "p0", "prompt": "The cat sat on the mat."}\n')
    store = command("method=sps", "task=prompts", f"task.path={file}", "timed=0", "n=1").store

    def shown() -> dict[str, Any]:
        assert view.main([f"store.dir={store.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
        [group] = data(tmp_path / "bundle")
        return group

    before = shown()
    assert "without the prompts" not in before["title"]
    file.write_text('{"id": "p0", "prompt": "A dog stood in the rain."}\n')
    after = shown()
    assert "without the prompts: the files of the task have changed since" in after["title"]
    assert len(after["cells"]) == len(before["cells"]) == 2, "the answers are shown"
    assert all(messages == [] for _, messages in after["prompts"])


@pytest.fixture
def timed_store(command) -> Store:
    """A method and its baseline, timed."""
    return command("method=sps", "timed=2", "trace=true").store


def test_a_run_is_written_in_every_format(
    timed_store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("parquet", "spec_bench"):
        assert (
            exchange.main([f"to={name}", f"store.dir={timed_store.root}", f"out={tmp_path / name}"])
            == 0
        )
        lines = capsys.readouterr().out.splitlines()
        assert lines and all(Path(line.split(": ")[0]).is_file() for line in lines)
