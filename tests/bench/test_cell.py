"""The name of a cell is a function of what decides its result, and of nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from bench.config.compose import composer
from bench.config.errors import ConfigError
from methods.engine import fingerprints, user_cache
from methods.engine.fingerprints import fingerprint, unhashed


@pytest.fixture(scope="module")
def cell_of(pair_folder: Path):
    pair = ["pair=local", f"pair.target={pair_folder / 'target'}", f"pair.draft={pair_folder / 'draft'}"]
    with composer() as hydra:
        yield lambda *overrides: hydra.point([*pair, "method=mars", "n=3", *overrides]).cell


def test_name_is_readable_and_repeats(cell_of) -> None:
    assert cell_of().name == cell_of().name
    assert cell_of().name.startswith("local-mars-mini_gsm-") and len(cell_of().name.rsplit("-", 1)[1]) == 10
    assert cell_of("method=pld").name.startswith("local-prompt_lookup-lossless-mini_gsm-")
    assert cell_of("method=ar").name.startswith("local-ar-mini_gsm-")


@pytest.mark.parametrize("override", [
    "store.dir=elsewhere", "output.dir=elsewhere", "summary=json", "tracker=wandb", "dry_run=true", "method=mars",
    "engine.device=cpu", "rule.theta=0.90", "n=4", "n=null", "engine.threads=1", "engine.decoder=lean",
    "engine.graphs=auto",
])
def test_name_ignores(cell_of, override: str) -> None:
    assert cell_of(override).name == cell_of().name


def test_limit_counts_wherever_it_is_set(cell_of) -> None:
    limit = cell_of().decoding.max_new_tokens
    assert limit == cell_of().task.options.max_new_tokens
    assert cell_of(f"decoding.max_new_tokens={limit}").name == cell_of().name
    assert cell_of("decoding.max_new_tokens=9").name == cell_of("task.max_new_tokens=9").name != cell_of().name


@pytest.mark.parametrize("override", [
    "rule.theta=0.91", "rule.variant=sampling", "rule=lossless", "drafter.sample=false", "draft.length=6", "method=ar",
    "seed=1", "repeat=1", "batch=2", "task=mini_chat", "decoding.temperature=1", "decoding.top_p=0.9",
    "decoding.min_p=0.1", "decoding.top_k=5", "decoding.max_new_tokens=9", "engine.dtype=bfloat16",
    "engine.decoder=transformers",
])
def test_name_depends_on(cell_of, override: str) -> None:
    assert cell_of(override).name != cell_of().name


def test_nothing_is_drafted_so_neither_length_nor_rule_matter(cell_of) -> None:
    baseline = cell_of("method=ar")
    assert cell_of("method=ar", "draft.length=9").name == baseline.name
    assert cell_of("drafter=none", "rule=greedy").name == baseline.name
    assert cell_of("method=ar", "pair.draft=null").name == baseline.name


def test_one_rotation_shares_all_but_the_method(cell_of) -> None:
    key = cell_of().rotation_key
    assert {cell_of(o).rotation_key for o in ("method=ar", "method=pld", "draft.length=9", "rule.theta=0.5")} == {key}
    assert key not in {cell_of(o).rotation_key for o in ("seed=1", "task=mini_chat", "batch=2")}
    assert cell_of("n=4").rotation_key == cell_of("timed=0").rotation_key == key
    assert cell_of("n=4", "timed=0").name == cell_of().name, "numbers of prompts extend a cell"


def test_contents_count_and_places_do_not(cell_of, pair_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(pair_folder, tmp_path / "copy")
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "1", "prompt": "Hello"}\n')
    (tmp_path / "b.jsonl").write_text(file.read_text())
    (tmp_path / "c.jsonl").write_text('{"id": "1", "prompt": "Goodbye"}\n')

    def name(folder: Path, prompts: str) -> str:
        return cell_of("task=prompts", f"task.path={tmp_path / prompts}", f"pair.target={folder / 'target'}").name

    original = name(pair_folder, "a.jsonl")
    assert name(tmp_path / "copy", "b.jsonl") == original
    assert name(pair_folder, "c.jsonl") != original
    config = tmp_path / "copy" / "target" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 0.1}))
    assert name(tmp_path / "copy", "a.jsonl") != original


@pytest.mark.parametrize("changed", ["model.safetensors", "tokenizer.json", "chat_template.jinja",
                                     "generation_config.json", "config.json"])
def test_any_byte_of_a_checkpoint_counts(cell_of, pair_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         changed: str) -> None:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    target = tmp_path / "target"
    shutil.copytree(pair_folder / "target", target)
    name = cell_of("method=ar", f"pair.target={target}").name
    assert cell_of("method=ar", f"pair.target={target}").name == name
    file = target / changed
    content, status = bytearray(file.read_bytes()), file.stat()
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a copy that preserves times leaves it
    assert cell_of("method=ar", f"pair.target={target}").name != name


def test_of_a_hub_snapshot_the_names_of_the_blobs_count(tmp_path: Path, pair_folder: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_CACHE", str(tmp_path / "cache"))
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in (pair_folder / "target").iterdir():
        blob = blobs / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(blob)
    monkeypatch.setattr(fingerprints, "_snapshot", lambda source, revision: snapshot)
    monkeypatch.setattr(user_cache, "sha256", pytest.fail)
    local, hub = fingerprint(str(snapshot)), fingerprint("org/model")
    assert not unhashed(snapshot)
    other = blobs / ("0" * 64)
    shutil.copy(pair_folder / "draft" / "model.safetensors", other)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other)
    assert fingerprint(str(snapshot)) != local
    (snapshot / "tokenizer.json").unlink()
    shutil.copy(pair_folder / "target" / "tokenizer.json", snapshot)
    assert fingerprint("org/model") != hub, "a file that was put in by hand is no part of the commit"


@pytest.mark.parametrize(("overrides", "option"), [
    (["task=prompts"], "task.path={}.jsonl"),
    (["task=mt_bench"], "task.references={}.jsonl"),
    (["task=gsm8k"], "task.shots.source={}.jsonl"),
    (["method=eagle", "drafter.tree=eagle_25"], "drafter.tree={}.yaml"),
    (["method=medusa"], "drafter.tree={}.yaml"),
    (["rule=arc"], "rule.constants={}.json"),
    (["rule=autojudge"], "rule.classifier={}.json"),
    (["rule=either", "rule.second.name=autojudge"], "+rule.second.classifier={}.json"),
])
def test_every_file_counts_by_its_content(cell_of, pair_folder: Path, tmp_path: Path, overrides: list[str],
                                          option: str) -> None:
    rows = "".join(f'{{"id": "{i}", "prompt": "Hello", "question": "q", "answer": "1 #### 2"}}\n' for i in range(4))
    text = "source: mine\npaths: |\n  0 1\n" if option.endswith("yaml") else rows
    suffix = option.rpartition("}")[2]
    for name, content in (("a", text), ("b", text), ("c", text.replace("1\n", "1 2\n").replace("Hello", "Bye"))):
        (tmp_path / f"{name}{suffix}").write_text(content)
    heads = [f"pair.{head}=random:{pair_folder / head}" for head in ("eagle", "medusa")]
    same, moved, changed = (cell_of(*heads, *overrides, option.format(tmp_path / name)).name for name in "abc")
    assert same == moved != changed


def test_the_chat_template_counts_and_its_place_does_not(cell_of, tmp_path: Path) -> None:
    for name, text in (("a", "{{ messages }}"), ("b", "{{ messages }}"), ("c", "{{ messages[0] }}")):
        (tmp_path / name).write_text(text)
    names = [cell_of(f"pair.chat_template={tmp_path / name}").name for name in "abc"]
    assert names[0] == names[1] != names[2] and cell_of().name not in names
    with pytest.raises(ConfigError, match=r"pair\.chat_template.*no such file"):
        cell_of(f"pair.chat_template={tmp_path / 'd'}")
