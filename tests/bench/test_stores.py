"""The page of a store."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import view
from results.store.cells import Store


def data(folder: Path, part: str = "index") -> list[Any]:
    """A part of the page in a folder."""
    page = (folder / "index.html").read_text()
    packed = page.partition(f'data-part="{part}">')[2].partition("</script>")[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.fixture
def group_of(tmp_path) -> Callable[[Store], dict[str, Any]]:
    """Writes the page of a store; its only group."""

    def shown(store: Store) -> dict[str, Any]:
        assert view.main([f"store.dir={store.root}", f"bundle={tmp_path / 'bundle'}"]) == 0
        [group] = data(tmp_path / "bundle")
        return group

    return shown


def test_a_bundle_shows_every_cell(store, group_of, tmp_path, capsys):
    group = group_of(store)
    assert str(tmp_path / "bundle" / "index.html") in capsys.readouterr().out
    assert [name for _, name, _ in group["cells"]] == ["ar", "lossless", "mars"]
    assert len(group["prompts"]) == 3
    key = group["cells"][2][0]
    samples = {sample.id: sample for sample in store.cell(key).good_samples()}
    for (name, _), shown in zip(group["prompts"], data(tmp_path / "bundle", key), strict=True):
        assert all("m" in turn for turn in shown["turns"]), "its trace"
        tokens = sum(len(turn["t"]) for turn in shown["turns"])
        assert len(samples[name].output_ids) == tokens


def test_a_store_whose_models_are_elsewhere(store, group_of, tmp_path, pair_folder):
    """Somebody else's store: texts without tokens."""
    for folder in store.cells():
        moved = json.dumps(folder.config()).replace(str(pair_folder), "/nowhere")
        folder.write_config(json.loads(moved))
    group = group_of(store)
    assert "its tokenizer is not on this machine" in group["title"] and len(group["cells"]) == 3
    answers = data(tmp_path / "bundle", group["cells"][0][0])
    assert all("text" in turn for answer in answers for turn in answer["turns"])


@pytest.mark.parametrize(
    "name", ["environment.json", "samples.jsonl", "timed.jsonl", "trace/00000.parquet"]
)
def test_any_damaged_file_hides_no_other_cell(store, group_of, name, caplog):
    next(iter(store.root.glob("*mars*"))).joinpath(name).write_bytes(b"\xff{\n")
    assert len(group_of(store)["cells"]) == 2 and name in caplog.text


def test_prompts_that_have_changed_are_not_shown(command, group_of, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "p0", "prompt": "The cat sat on the mat."}\n')
    store = command(f"method=sps task=prompts task.path={file} n=1").store
    before = group_of(store)
    assert "without the prompts" not in before["title"]
    file.write_text('{"id": "p0", "prompt": "A dog stood in the rain."}\n')
    after = group_of(store)
    assert "without the prompts: the files of the task have changed since" in after["title"]
    assert len(after["cells"]) == len(before["cells"]) == 2, "the answers are shown"
    assert all(messages == [] for _, messages in after["prompts"])
